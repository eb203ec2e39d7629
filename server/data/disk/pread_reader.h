// Reads by threads that call pread: where there is no io_uring.
// Threads: DiskReader's; its own begin with the reads that need them, kMaxReadThreads at most, and end with it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/disk/disk_file.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

inline constexpr int kMaxReadThreads = 32;

absl::StatusOr<std::unique_ptr<DiskReader>> OpenPreadReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback);

}  // namespace permafrost
