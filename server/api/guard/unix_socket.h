// The unix socket that the server is also reached by: who may open it, its owner alone, is an admin.
// Threads: pure functions over the file system.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace permafrost::api {

// Bytes of a socket's path that the system takes.
size_t MaxSocketPath();
// Removes a socket that nobody serves any more. Errors: FailedPrecondition where the path is too long, another process
// serves it, or it is no socket, which is left alone.
absl::Status PrepareSocket(const std::filesystem::path& path);
// Returns the path as gRPC takes it: "unix:/run/permafrost.sock".
std::string SocketUri(const std::filesystem::path& path);
// Mode 0600. Errors: those of SystemError.
absl::Status CloseToOthers(const std::filesystem::path& path);

}  // namespace permafrost::api
