// Reads by one io_uring (Linux): all that were started go to the kernel in one system call, with the wait for the first
// that is done. The file is registered, and so are the buffers where the limit of locked memory allows it.
// Threads: DiskReader's.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/disk/disk_file.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

// FailedPrecondition, "io_uring cannot be used (REASON)": a kernel without it, a container that forbids it, a build
// without it. That a trial read came has shown that it works.
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback);

}  // namespace permafrost
