// A read-only, shared mapping of a whole file. The page cache holds the only copy in memory.
// While the file is mapped, another process may truncate it or write to it, or the disk may fail. A read of a page
// beyond the new end, or of a page that the disk cannot read, then raises SIGBUS, which would end the process. This
// class catches SIGBUS and maps zeros from that page to the end of the mapping. From then on, CheckIntact returns an
// error. A reader must survive zeros, and must not trust what it read until a later CheckIntact returns Ok.
// Threads: all methods are safe anywhere. Memory: the object owns the mapping. Unlinking the file, or replacing it by
// a rename, does not affect the mapping.
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

// Asks the kernel to begin reading all of `bytes` now, instead of page by page at the first touch. `bytes` may lie in
// any mapping.
void AdviseWillNeed(std::span<const std::byte> bytes);

class MappedFile {
 public:
  // A hint to the kernel about how the file will be read. With kRandom, the kernel reads only the touched page. To
  // read its neighbours too would push needed pages out of memory.
  enum class Access { kNormal, kRandom };

  // Errors: those of ReadFile; ResourceExhausted, which is transient (status.h), if kMaxMappings files are mapped
  // already.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path,
                                                          Access access = Access::kNormal);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // Returns Ok if everything read so far is what the file holds. Makes one system call. Errors: DataLoss, naming the
  // path, if the file was truncated or written to since Open; a transient error of SystemError if the disk failed to
  // read a page of the unchanged file. After a transient error, the caller may open the file anew and read again.
  absl::Status CheckIntact() const;

  static constexpr size_t kMaxMappings = 4096;

 private:
  MappedFile(std::filesystem::path path, Descriptor file, const std::byte* data, std::uint64_t size,
             std::int64_t modified, MappedWatch* watch);

  const std::filesystem::path path_;
  const Descriptor file_;
  const std::byte* const data_;
  const std::uint64_t size_;
  const std::int64_t modified_;  // time of the file's last write, read by Open, in ns since the epoch
  MappedWatch* const watch_;     // the slot in which the signal handler finds the mapping; nullptr for an empty file
};

}  // namespace permafrost
