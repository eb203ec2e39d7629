// A read-only, shared mapping of a whole file. The page cache is the only copy.
// Someone may cut the file short or write into it meanwhile. The kernel answers a read beyond the new end with SIGBUS,
// which would end the process: here such a read finds zeros instead, and CheckIntact says so from then on. Whoever
// reads must take nothing that it read for true before CheckIntact is Ok after the read, and must survive zeros until
// then. Threads: all methods are safe anywhere. Owns the mapping; the file may be unlinked or replaced by a rename
// meanwhile, which changes nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace permafrost {

struct MappedWatch;

// Asks the kernel to begin reading all of `bytes`, of any mapping, rather than page by page as they are touched.
void AdviseWillNeed(std::span<const std::byte> bytes);

class MappedFile {
 public:
  // How the file will be read.
  //   kRandom: a page that is touched brings no neighbours with it, which would push out pages that are wanted.
  //   kTransfer: once, from its begin to its end, for a client. Clients that do not read on keep their mappings, so
  //     these have a bound of their own and leave the rest to datasets and jobs.
  enum class Access { kNormal, kRandom, kTransfer };

  // Errors: as ReadFile; ResourceExhausted beyond kMaxMappings at once, or kMaxTransfers of kTransfer.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path,
                                                          Access access = Access::kNormal);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // DataLoss, naming the path, once the file was cut short or written to since Open. One system call.
  absl::Status CheckIntact() const;

  static constexpr size_t kMaxMappings = 4096;
  // Of these, at most so many of kTransfer.
  static constexpr size_t kMaxTransfers = 512;

 private:
  // One of kMaxTransfers, given back at its end.
  class Transfer {
   public:
    // Empty where none is free.
    static std::optional<Transfer> Take();
    Transfer(Transfer&& other) noexcept : taken_(std::exchange(other.taken_, false)) {}
    Transfer& operator=(Transfer&&) = delete;
    ~Transfer();

   private:
    Transfer() = default;
    bool taken_ = true;
  };

  MappedFile(std::filesystem::path path, Descriptor file, std::optional<Transfer> transfer, const std::byte* data,
             std::uint64_t size, std::int64_t modified, MappedWatch* watch);

  const std::filesystem::path path_;
  const Descriptor file_;
  const std::optional<Transfer> transfer_;
  const std::byte* const data_;
  const std::uint64_t size_;
  const std::int64_t modified_;  // nanoseconds
  MappedWatch* const watch_;     // where the signal handler finds it; nullptr for an empty file
};

}  // namespace permafrost
