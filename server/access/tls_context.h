// Makes the contexts of TLS connections by OpenSSL, and owns its objects.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "access/certificate_files.h"

namespace permafrost::access {

// Owners of OpenSSL's objects, and what both sides of TLS read of PEM.
// Threads: pure functions.
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

// OpenSSL's side of CertificateFiles.
// Threads: all of it is safe anywhere.

// The context of connections that begin now: TLS 1.2 or newer, made anew when the files have changed.
class TlsContexts {
 public:
  // Null: OpenSSL takes none of what the files hold; what it took last is used while there is one.
  std::shared_ptr<SSL_CTX> For(CertificateFiles& files);

 private:
  absl::Mutex mu_;
  std::shared_ptr<const CertificateContent> made_of_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mu_);
};

// The subject of the client certificate that the handshake has verified; empty: there is none.
std::string SubjectOf(const SSL& ssl);

}  // namespace permafrost::access
