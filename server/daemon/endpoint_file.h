// STATE_DIR/endpoint.json, where scripts read at which addresses the daemon serves: there while it does.
// Threads: one.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace permafrost {

class EndpointFile {
 public:
  // `grpc`, `metrics`: host:port as bound. Errors: those of WriteFileAtomic.
  static absl::StatusOr<EndpointFile> Write(const std::filesystem::path& state_dir, const std::string& grpc,
                                            const std::string& metrics);
  EndpointFile(EndpointFile&& other) noexcept;
  EndpointFile& operator=(EndpointFile&&) = delete;
  // Removes it.
  ~EndpointFile();

 private:
  explicit EndpointFile(std::filesystem::path path);

  std::filesystem::path path_;  // empty once moved from
};

}  // namespace permafrost
