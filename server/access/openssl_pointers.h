// Owners of OpenSSL's objects, and what both sides of TLS read of PEM.
// Threads: pure functions.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace permafrost::access {

template <auto kFree>
struct FreeWith {
  template <class T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using BioPointer = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;
using CertificatePointer = std::unique_ptr<X509, FreeWith<X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;

// Reads `text`, which outlives it.
BioPointer BioOf(const std::string& text);
// The private key of a PEM text; null: there is none that needs no passphrase.
KeyPointer KeyOf(const std::string& pem);
// "CN=trainer,O=Lab".
std::string SubjectOf(const X509& certificate);

}  // namespace permafrost::access
