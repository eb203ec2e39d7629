// A read-only, shared mapping of a whole file. The page cache is the only copy.
// Someone may cut the file short or write into it meanwhile, or the disk may fail. The kernel answers a read beyond the
// new end, or of what the disk does not give, with SIGBUS, which would end the process: here such a read finds zeros
// instead, and CheckIntact says so from then on. Whoever reads must take nothing that it read for true before
// CheckIntact is Ok after the read, and must survive zeros until then. Threads: all methods are safe anywhere. Owns the
// mapping; the file may be unlinked or replaced by a rename meanwhile, which changes nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace permafrost {

struct MappedWatch;

// Asks the kernel to begin reading all of `bytes`, of any mapping, rather than page by page as they are touched.
void AdviseWillNeed(std::span<const std::byte> bytes);

class MappedFile {
 public:
  // Tells the kernel how the file will be read. kRandom: a page that is touched brings no neighbours with it, which
  // would push out pages that are wanted.
  enum class Access { kNormal, kRandom };

  // Errors: as ReadFile; ResourceExhausted beyond kMaxMappings at once, which is transient too (status.h).
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path,
                                                          Access access = Access::kNormal);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // DataLoss, naming the path, once the file was cut short or written to since Open. The error of SystemError,
  // transient, once a read failed of a file that did neither: a caller that opens it anew may be able to read it. One
  // system call.
  absl::Status CheckIntact() const;

  static constexpr size_t kMaxMappings = 4096;

 private:
  MappedFile(std::filesystem::path path, Descriptor file, const std::byte* data, std::uint64_t size,
             std::int64_t modified, MappedWatch* watch);

  const std::filesystem::path path_;
  const Descriptor file_;
  const std::byte* const data_;
  const std::uint64_t size_;
  const std::int64_t modified_;  // nanoseconds
  MappedWatch* const watch_;     // where the signal handler finds it; nullptr for an empty file
};

}  // namespace permafrost
