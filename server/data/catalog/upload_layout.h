// What stands in an upload's folder, for the store and its writers (upload_store.h). Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

namespace permafrost::data {

inline constexpr char kUploadFiles[] = "files";
inline constexpr char kUploadComplete[] = "complete";

// Of the file there, no link followed; 0: there is none. Errors: those of SystemError.
absl::StatusOr<int64_t> BytesAt(const std::filesystem::path& path);
// Whether a file is there, no link followed.
bool IsRegular(const std::filesystem::path& path);

}  // namespace permafrost::data
