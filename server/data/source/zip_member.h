// One member of a ZIP archive as a stream, stored or deflated, of any size.
// Threads: one at a time. Memory: the archive's directory and buffers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/source/source_file.h"

namespace permafrost::data {

// Opens `member` of `archive`. Borrows the monitor, which learns of the archive's bytes as they are unpacked.
// Errors: NotFound if there is no such member; InvalidArgument, naming the archive, for what is no ZIP archive or is
// packed in a way unknown here; what OpenSource says. Those of reading do not name it.
absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& archive, const std::string& member,
                                                            ImportMonitor& monitor);

}  // namespace permafrost::data
