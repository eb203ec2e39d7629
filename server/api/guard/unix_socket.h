// The unix socket of the server. Only its owner may open it, and every caller through it is an admin.
// Threads: pure functions over the file system.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace permafrost::api {

// Returns the most bytes that the system accepts in a socket's path.
size_t MaxSocketPath();
// Removes the socket at `path` if no process serves it any more. Errors: FailedPrecondition if the path is too long,
// if another process serves the socket, or if the file is not a socket; also the errors of SystemError. After an
// error the file is still there.
absl::Status PrepareSocket(const std::filesystem::path& path);
// Returns the path in gRPC's form: "unix:/run/permafrost.sock".
std::string SocketUri(const std::filesystem::path& path);
// Sets the mode of the file to 0600. Errors: those of SystemError.
absl::Status CloseToOthers(const std::filesystem::path& path);

}  // namespace permafrost::api
