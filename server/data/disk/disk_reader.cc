#include "data/disk/disk_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/disk/disk_reader_impl.h"

namespace permafrost {
namespace {

absl::Status CheckOptions(const DiskReader::Options& options) {
  // All buffers together.
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  Violations violations;
  if (options.depth < 1 || options.depth > DiskReader::kMaxDepth) {
    violations.Add("depth", absl::StrCat(options.depth, " is outside 1..", DiskReader::kMaxDepth));
  }
  const uint32_t longest = options.max_read_bytes;
  if (longest == 0 || longest % kDiskPageBytes != 0 || longest > DiskReader::kMaxReadBytes) {
    violations.Add("max_read_bytes", absl::StrCat(longest, " is no multiple of ", kDiskPageBytes, " in ",
                                                  kDiskPageBytes, "..", DiskReader::kMaxReadBytes));
  } else if (violations.empty() && static_cast<uint64_t>(options.depth) * longest > kMostBytes) {
    violations.Add("depth", absl::StrCat(options.depth, " reads of ", longest, " bytes need more than ", kMostBytes,
                                         " bytes of buffers"));
  }
  return violations.ToStatus();
}

std::string Both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : absl::StrCat(a, "; ", b);
}

}  // namespace

#ifndef PERMAFROST_URING
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> /*file*/,
                                                            const DiskReader::Options& /*options*/,
                                                            std::string /*fallback*/) {
  return absl::FailedPreconditionError("io_uring cannot be used (this build is without it)");
}
#endif

absl::StatusOr<std::unique_ptr<DiskReader>> DiskReader::Open(const std::filesystem::path& path,
                                                             const Options& options) {
  PF_RETURN_IF_ERROR(CheckOptions(options));
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<const DiskFile> file, DiskFile::Open(path, options.direct));
  if (options.kind == DiskReaderKind::kPread) return OpenPreadReader(file, options, file->fallback);
  absl::StatusOr<std::unique_ptr<DiskReader>> ring = OpenUringReader(file, options, file->fallback);
  if (ring.ok() || !absl::IsFailedPrecondition(ring.status())) return ring;
  if (options.kind) return Annotate(ring.status(), path.string());
  return OpenPreadReader(file, options,
                         Both(absl::StrCat(ring.status().message(), ": threads read by pread"), file->fallback));
}

}  // namespace permafrost
