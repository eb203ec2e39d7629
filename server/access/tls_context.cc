#include "access/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "telemetry/log.h"

namespace permafrost::access {
namespace {

constexpr unsigned char kSessionContext[] = "permafrost";

// All certificates of a PEM text, in order.
std::vector<CertificatePointer> CertificatesIn(const std::string& pem) {
  std::vector<CertificatePointer> certificates;
  const BioPointer bio = BioOf(pem);
  while (CertificatePointer next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();
  return certificates;
}

bool UseCertificate(SSL_CTX& context, const CertificateContent& content) {
  const std::vector<CertificatePointer> chain = CertificatesIn(content.certificate);
  const KeyPointer key = KeyOf(content.key);
  if (chain.empty() || !key || SSL_CTX_use_certificate(&context, chain[0].get()) != 1 ||
      SSL_CTX_use_PrivateKey(&context, key.get()) != 1) {
    return false;
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(&context, chain[i].get()) != 1) return false;
  }
  return true;
}

bool AskForCertificates(SSL_CTX& context, const std::string& authority) {
  const std::vector<CertificatePointer> certificates = CertificatesIn(authority);
  for (const CertificatePointer& certificate : certificates) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), certificate.get()) != 1 ||
        SSL_CTX_add_client_CA(&context, certificate.get()) != 1) {
      return false;
    }
  }
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return !certificates.empty();
}

std::shared_ptr<SSL_CTX> MakeContext(const CertificateContent& content) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  const bool made = context && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
                    SSL_CTX_set_session_id_context(context.get(), kSessionContext, sizeof(kSessionContext) - 1) == 1 &&
                    UseCertificate(*context, content) &&
                    (content.client_authority.empty() || AskForCertificates(*context, content.client_authority));
  ERR_clear_error();
  return made ? context : nullptr;
}

}  // namespace

std::shared_ptr<SSL_CTX> TlsContexts::For(CertificateFiles& files) {
  const absl::MutexLock lock(&mu_);
  const std::shared_ptr<const CertificateContent> content = files.Current();
  if (content == made_of_) return context_;
  made_of_ = content;
  if (std::shared_ptr<SSL_CTX> context = MakeContext(*content)) {
    context_ = std::move(context);
  } else {
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("OpenSSL does not take the certificate ", files.files().certificate.string(),
                                ", its key or the client CA: /metrics goes on with what it had"));
  }
  return context_;
}

std::string SubjectOf(const SSL& ssl) {
  const CertificatePointer certificate(SSL_get1_peer_certificate(&ssl));
  return certificate ? SubjectOf(*certificate) : "";
}

}  // namespace permafrost::access
