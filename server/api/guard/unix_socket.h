// The unix socket of the server. Only its owner may open it, and every caller through it is an admin.
// Threads: pure functions over the file system.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace permafrost::api {

// Returns the most bytes that the system accepts in a socket's path.
size_t MaxSocketPath();
// Removes a socket that no process serves any more. Errors: FailedPrecondition if the path is too long, another
// process serves the socket, or the file is not a socket. In these cases the file stays.
absl::Status PrepareSocket(const std::filesystem::path& path);
// Returns the path in gRPC's form: "unix:/run/permafrost.sock".
std::string SocketUri(const std::filesystem::path& path);
// Sets mode 0600. Errors: those of SystemError.
absl::Status CloseToOthers(const std::filesystem::path& path);

}  // namespace permafrost::api
