// TLS for the daemon's addresses. Reads the server's certificate, its key and the authority of client certificates
// from PEM files, and makes OpenSSL contexts from them. Changed files are read again: after a certificate file is
// replaced, new connections get the new certificate.
// Threads: all methods are thread-safe.
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
  // PEM files of the server's certificate and its key. The certificate's file may contain intermediate certificates
  // after the server's.
  std::filesystem::path certificate, key;
  // Certificates of the authorities that sign client certificates. If given, a connection without a valid client
  // certificate is refused. Empty: clients need no certificate.
  std::filesystem::path client_authority;
};

// The checked content of the files.
struct CertificateContent {
  std::string certificate, key, client_authority;
  std::string subject;  // subject of the server's certificate: "CN=trainer,O=Lab"
  absl::Time not_before, not_after;
};

// Reads the files once. Errors: one line that names the file and the fault, and contains nothing of the key. An
// expired certificate is not an error.
absl::StatusOr<CertificateContent> ReadCertificateFiles(const TlsFiles& files);
// Returns why the certificate is not valid at `now`, such as "expired on 2026-01-02" or "is not valid before
// 2027-01-01". Returns an empty text for a valid certificate.
std::string WhyNotValid(const CertificateContent& content, absl::Time now);

class CertificateFiles {
 public:
  // Logs a warning if the certificate is not valid now. Errors: those of ReadCertificateFiles.
  static absl::StatusOr<std::unique_ptr<CertificateFiles>> Open(TlsFiles files);

  const TlsFiles& files() const { return files_; }
  // Returns the current content of the files. If they cannot be read or do not fit together, logs that and returns
  // the last good content. While certificate and key are being replaced, the new certificate is thus never used with
  // the old key.
  std::shared_ptr<const CertificateContent> Current();

 private:
  // Size, modification time and inode of a file. A replacement changes at least one of them.
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

// Makes the OpenSSL context for new connections (TLS 1.2 or newer) from CertificateFiles. When the files have
// changed, makes a new context.
class TlsContexts {
 public:
  // If OpenSSL refuses the files' content, returns the last context that it accepted, or null if there is none.
  std::shared_ptr<SSL_CTX> For(CertificateFiles& files);

 private:
  absl::Mutex mu_;
  std::shared_ptr<const CertificateContent> made_of_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mu_);
};

// Returns the subject of the client certificate that the handshake verified; empty if there is none.
std::string SubjectOf(const SSL& ssl);

}  // namespace permafrost::access
