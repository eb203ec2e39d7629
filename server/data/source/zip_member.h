// One member of a ZIP archive as a stream, stored or deflated, of any size. Nothing is ever unpacked to disk, so that a
// member's name is a name and leads nowhere.
// Threads: one at a time. Memory: the archive's directory and buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/source/source_file.h"

namespace permafrost::data {

struct ZipEntry {
  std::string name;
  uint64_t packed = 0, unpacked = 0;  // bytes, as the archive says
};

// The members of the archive `file`, in its order. Errors: as OpenZipMember; InvalidArgument for one with an
// absolute path or one with '..'.
absl::StatusOr<std::vector<ZipEntry>> ListZip(const SourceFile& file, const ImportMonitor& monitor);

// Opens `member` of the archive `file`. Borrows the monitor, which learns of the archive's bytes as they are unpacked.
// Errors: NotFound if there is no such member; InvalidArgument, naming the archive, for what is no ZIP archive or is
// packed in a way unknown here; what OpenSource says. Errors of reading are as SourceReader::Read's.
absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor);

}  // namespace permafrost::data
