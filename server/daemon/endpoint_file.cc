#include "daemon/endpoint_file.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/status.h"

namespace permafrost {

absl::StatusOr<EndpointFile> EndpointFile::Write(const std::filesystem::path& state_dir, const Endpoint& endpoint) {
  std::filesystem::path path = state_dir / "endpoint.json";
  const nlohmann::json content = {{"grpc", endpoint.grpc}, {"metrics", endpoint.metrics}, {"socket", endpoint.socket},
                                  {"auth", endpoint.auth}, {"tls", endpoint.tls},         {"pid", getpid()}};
  PF_RETURN_IF_ERROR(WriteFileAtomic(path, content.dump() + "\n"));
  return EndpointFile(std::move(path));
}

EndpointFile::EndpointFile(std::filesystem::path path) : path_(std::move(path)) {}

EndpointFile::EndpointFile(EndpointFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

EndpointFile::~EndpointFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

}  // namespace permafrost
