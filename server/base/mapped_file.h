// A read-only, shared mapping of a whole file. The page cache is the only copy.
// While the file is mapped, another process may truncate it or write to it, or the disk may fail. If a page lies
// beyond the new end, or the disk cannot read it, the kernel answers a read with SIGBUS, which would end the process.
// This class catches the signal and maps zeros at the page. From then on CheckIntact returns an error. A reader must
// survive zeros, and must not trust what it read until a later CheckIntact returns Ok.
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
  // Tells the kernel how the file will be read. With kRandom, touching a page does not read its neighbours, which
  // would push out pages that are needed.
  enum class Access { kNormal, kRandom };

  // Errors: same as ReadFile. Also ResourceExhausted if kMaxMappings files are mapped already; this is transient
  // (status.h).
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path,
                                                          Access access = Access::kNormal);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // Makes one system call. If the file was truncated or written to since Open, returns DataLoss that names the path.
  // If a read failed although the file did not change, returns a transient error of SystemError: reading may work
  // after the caller opens the file anew.
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
  MappedWatch* const watch_;     // the slot in which the signal handler finds the mapping; nullptr for an empty file
};

}  // namespace permafrost
