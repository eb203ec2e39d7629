// TLS as the daemon's doors offer it: the server's certificate, its key and the authority of client certificates, from
// PEM files that are read again when they have changed, and contexts of OpenSSL made of them. A connection that begins
// after a file was replaced is shown the new one. Threads: all methods are safe anywhere.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace permafrost::access {

struct TlsFiles {
  // PEM. The certificate's file may hold intermediate ones after it.
  std::filesystem::path certificate, key;
  // Certificates of the authorities that sign client certificates; empty: clients show none. Where it is given, a
  // connection without a valid client certificate is refused.
  std::filesystem::path client_authority;
};

// The content of the files, checked.
struct CertificateContent {
  std::string certificate, key, client_authority;
  std::string subject;  // of the server's certificate: "CN=trainer,O=Lab"
  absl::Time not_before, not_after;
};

// Reads them once. Errors: one line that names the file and what is wrong in it; never anything of the key. An expired
// certificate is none.
absl::StatusOr<CertificateContent> ReadCertificateFiles(const TlsFiles& files);
// "expired on 2026-01-02", "is not valid before 2027-01-01"; empty: it is valid at `now`.
std::string WhyNotValid(const CertificateContent& content, absl::Time now);

class CertificateFiles {
 public:
  // Errors: those of ReadCertificateFiles. Warns, in the daemon's log, of a certificate that is not valid now.
  static absl::StatusOr<std::unique_ptr<CertificateFiles>> Open(TlsFiles files);

  const TlsFiles& files() const { return files_; }
  // Returns the content as the files are now. Where they cannot be read, or do not fit together, that is told in the
  // daemon's log and the last good content stays: when two files are replaced one after the other, the pair between is
  // never used.
  std::shared_ptr<const CertificateContent> Current();

 private:
  // Size, time of change and inode of a file: what a replacement changes.
  struct Stamp {
    int64_t bytes = -1, changed = 0;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;

  explicit CertificateFiles(TlsFiles files) : files_(std::move(files)) {}
  Stamps ReadStamps() const;

  const TlsFiles files_;
  absl::Mutex mu_;
  Stamps stamps_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const CertificateContent> current_ ABSL_GUARDED_BY(mu_);
};

// Makes OpenSSL's context for connections that begin now (TLS 1.2 or newer) from CertificateFiles, and makes it anew
// when the files have changed.
class TlsContexts {
 public:
  // Null if OpenSSL refuses what the files hold. If it took earlier files, those are still used.
  std::shared_ptr<SSL_CTX> For(CertificateFiles& files);

 private:
  absl::Mutex mu_;
  std::shared_ptr<const CertificateContent> made_of_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mu_);
};

// The subject of the client certificate that the handshake has verified; empty: there is none.
std::string SubjectOf(const SSL& ssl);

}  // namespace permafrost::access
