// OpenSSL's side of CertificateFiles.
// Threads: all of it is safe anywhere.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "access/certificate_files.h"

namespace permafrost::access {

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
