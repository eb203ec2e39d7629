// Reads a file on its way to a server.
// Threads: pure functions of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace permafrost::client {

// Calls `take` with each piece from `offset` on, until it returns false. A piece has 512 KiB at most: the server takes
// messages of 1 MiB. Errors: Unavailable where it cannot be read.
absl::Status ReadPieces(const std::filesystem::path& path, int64_t offset,
                        const std::function<bool(std::string_view)>& take);

}  // namespace permafrost::client
