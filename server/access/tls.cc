#include "access/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstddef>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost::access {
namespace {

namespace fs = std::filesystem;

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

// Returns a BIO that reads `text`. `text` must outlive the BIO.
BioPointer BioOf(const std::string& text) {
  return BioPointer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// OpenSSL's callback for passphrases. Supplies none, so that OpenSSL does not ask for one on a terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*data*/) { return -1; }

// Returns the private key in a PEM text; null if the text has no key, or the key needs a passphrase.
KeyPointer KeyOf(const std::string& pem) {
  KeyPointer key(PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  return key;
}

// Returns the subject: "CN=trainer,O=Lab".
std::string SubjectOf(const X509& certificate) {
  const BioPointer out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), X509_get_subject_name(&certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const auto bytes = static_cast<size_t>(BIO_get_mem_data(out.get(), &text));
  return {text, bytes};
}

// Returns the first certificate of a file. Discards OpenSSL's error text, which fills a page.
CertificatePointer FirstCertificate(const std::string& pem) {
  CertificatePointer certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::Status BadPem(const fs::path& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(path.string(), ": ", what));
}

constexpr unsigned char kSessionContext[] = "permafrost";

// Returns all certificates in a PEM text, in order.
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

absl::StatusOr<CertificateContent> ReadCertificateFiles(const TlsFiles& files) {
  CertificateContent content;
  PF_ASSIGN_OR_RETURN(content.certificate, ReadFile(files.certificate));
  PF_ASSIGN_OR_RETURN(content.key, ReadFile(files.key));
  if (!files.client_authority.empty()) {
    PF_ASSIGN_OR_RETURN(content.client_authority, ReadFile(files.client_authority));
    if (!FirstCertificate(content.client_authority)) {
      return BadPem(files.client_authority, "holds no certificate in PEM");
    }
  }
  const CertificatePointer certificate = FirstCertificate(content.certificate);
  if (!certificate) return BadPem(files.certificate, "holds no certificate in PEM");
  const KeyPointer key = KeyOf(content.key);
  if (!key) return BadPem(files.key, "holds no private key in PEM, or one that needs a passphrase");
  const int fits = X509_check_private_key(certificate.get(), key.get());
  ERR_clear_error();
  if (fits != 1) {
    return BadPem(files.key, absl::StrCat("is not the key of the certificate ", files.certificate.string()));
  }
  content.subject = SubjectOf(*certificate);
  content.not_before = TimeOf(X509_get0_notBefore(certificate.get()));
  content.not_after = TimeOf(X509_get0_notAfter(certificate.get()));
  return content;
}

std::string WhyNotValid(const CertificateContent& content, absl::Time now) {
  const auto day = [](absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone()); };
  if (now > content.not_after) return absl::StrCat("expired on ", day(content.not_after));
  if (now < content.not_before) return absl::StrCat("is not valid before ", day(content.not_before));
  return "";
}

absl::StatusOr<std::unique_ptr<CertificateFiles>> CertificateFiles::Open(TlsFiles files) {
  std::unique_ptr<CertificateFiles> opened(new CertificateFiles(std::move(files)));
  const absl::MutexLock lock(&opened->mu_);
  opened->stamps_ = opened->ReadStamps();
  absl::StatusOr<CertificateContent> content = ReadCertificateFiles(opened->files_);
  if (!content.ok()) return content.status();
  if (const std::string why = WhyNotValid(*content, absl::Now()); !why.empty()) {
    telemetry::Log(telemetry::Severity::kWarning, absl::StrCat("the certificate ", opened->files_.certificate.string(),
                                                               " ", why, ": clients will refuse it"));
  }
  opened->current_ = std::make_shared<const CertificateContent>(*std::move(content));
  return opened;
}

CertificateFiles::Stamps CertificateFiles::ReadStamps() const {
  Stamps stamps;
  size_t i = 0;
  for (const fs::path* path : {&files_.certificate, &files_.key, &files_.client_authority}) {
    struct stat info {};
    if (!path->empty() && stat(path->c_str(), &info) == 0) {
      stamps[i] = {
          .bytes = info.st_size, .changed = ModifiedNanoseconds(info), .inode = static_cast<uint64_t>(info.st_ino)};
    }
    ++i;
  }
  return stamps;
}

std::shared_ptr<const CertificateContent> CertificateFiles::Current() {
  const absl::MutexLock lock(&mu_);
  // The stamps are read before the content, so that a file that changes during the reading is read again.
  const Stamps stamps = ReadStamps();
  if (stamps == stamps_) return current_;
  stamps_ = stamps;
  absl::StatusOr<CertificateContent> content = ReadCertificateFiles(files_);
  if (!content.ok()) {
    telemetry::Log(telemetry::Severity::kWarning,
                   absl::StrCat("the certificate that was read before stays: ", content.status().message()));
    return current_;
  }
  const std::string why = WhyNotValid(*content, absl::Now());
  telemetry::Log(why.empty() ? telemetry::Severity::kInfo : telemetry::Severity::kWarning,
                 absl::StrCat("read the certificate ", files_.certificate.string(), " anew: ", content->subject,
                              why.empty() ? "" : ", which ", why));
  current_ = std::make_shared<const CertificateContent>(*std::move(content));
  return current_;
}

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
