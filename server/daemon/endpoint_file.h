// STATE_DIR/endpoint.json, where scripts read at which addresses the daemon serves: there while it does.
// Threads: one.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace permafrost {

struct Endpoint {
  std::string grpc, metrics;  // host:port as bound
  std::string socket;         // path; empty: there is none
  std::string auth = "none";  // or "token"
  bool tls = false;
};

class EndpointFile {
 public:
  // Errors: those of WriteFileAtomic.
  static absl::StatusOr<EndpointFile> Write(const std::filesystem::path& state_dir, const Endpoint& endpoint);
  EndpointFile(EndpointFile&& other) noexcept;
  EndpointFile& operator=(EndpointFile&&) = delete;
  // Removes it.
  ~EndpointFile();

 private:
  explicit EndpointFile(std::filesystem::path path);

  std::filesystem::path path_;  // empty once moved from
};

}  // namespace permafrost
