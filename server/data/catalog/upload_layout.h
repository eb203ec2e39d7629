// The layout of an upload's folder, for the store and its writers (upload_store.h). Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

namespace permafrost::data {

inline constexpr char kUploadFiles[] = "files";
inline constexpr char kUploadComplete[] = "complete";

// The bytes of the file there, no link followed; 0: there is none. Errors: those of SystemError.
absl::StatusOr<int64_t> BytesAt(const std::filesystem::path& path);
// True if a file is there, no link followed.
bool IsRegular(const std::filesystem::path& path);

}  // namespace permafrost::data
