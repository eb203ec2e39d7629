// Certificates for tests, made by OpenSSL's libcrypto: an authority, and certificates that it signs.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace permafrost {

class TestAuthority {
 public:
  explicit TestAuthority(std::string name) : name_(std::move(name)), key_(EVP_EC_gen("P-256"), EVP_PKEY_free) {
    certificate_ = Sign(name_, key_.get(), /*begins=*/-86'400, /*ends=*/86'400, "CA:TRUE", "");
  }

  void WriteAuthority(const std::filesystem::path& path) const { WriteCertificate(path, *certificate_); }

  // Writes STEM.pem and STEM.key for localhost and 127.0.0.1, replacing each by a rename. The certificate is valid
  // from `begins` to `ends` seconds from now.
  void Issue(const std::string& stem, const std::string& name, long begins = -3'600, long ends = 3'600) const {
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const auto certificate = Sign(name, key.get(), begins, ends, "CA:FALSE", "DNS:localhost,IP:127.0.0.1");
    FILE* file = std::fopen((stem + ".key.new").c_str(), "w");
    if (file == nullptr || PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
        std::fclose(file) != 0) {
      std::abort();
    }
    std::filesystem::rename(stem + ".key.new", stem + ".key");
    WriteCertificate(stem + ".pem", *certificate);
  }

 private:
  using CertificateOwner = std::unique_ptr<X509, void (*)(X509*)>;

  static void AddExtension(X509& certificate, int kind, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    if (extension == nullptr || X509_add_ext(&certificate, extension, -1) != 1) std::abort();
    X509_EXTENSION_free(extension);
  }

  CertificateOwner Sign(const std::string& name, EVP_PKEY* key, long begins, long ends, const std::string& constraints,
                        const std::string& names) const {
    static long serial = 1;
    CertificateOwner certificate(X509_new(), X509_free);
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), begins);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), ends);
    X509_set_pubkey(certificate.get(), key);
    const auto set_name = [](X509_NAME* to, const std::string& text) {
      X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1,
                                 0);
    };
    set_name(X509_get_subject_name(certificate.get()), name);
    set_name(X509_get_issuer_name(certificate.get()), name_);
    AddExtension(*certificate, NID_basic_constraints, constraints);
    if (!names.empty()) AddExtension(*certificate, NID_subject_alt_name, names);
    if (X509_sign(certificate.get(), key_.get(), EVP_sha256()) == 0) std::abort();
    return certificate;
  }

  static void WriteCertificate(const std::filesystem::path& path, X509& certificate) {
    const std::string made = path.string() + ".new";
    FILE* file = std::fopen(made.c_str(), "w");
    if (file == nullptr || PEM_write_X509(file, &certificate) != 1 || std::fclose(file) != 0) std::abort();
    std::filesystem::rename(made, path);
  }

  const std::string name_;
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  CertificateOwner certificate_{nullptr, X509_free};
};

}  // namespace permafrost
