#include "base/disk_reserve.h"

#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost {

std::optional<uint64_t> DiskReserve::Free() const {
  if (folder_.empty()) return std::nullopt;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder_, error);
  if (error) return std::nullopt;
  return space.available;
}

absl::Status DiskReserve::Check(uint64_t wanted) const {
  if (bytes_ == 0) return absl::OkStatus();
  const std::optional<uint64_t> free = Free();
  if (!free || (*free >= bytes_ && *free - bytes_ >= wanted)) return absl::OkStatus();
  const std::string more = wanted == 0 ? "" : absl::StrCat(" for ", wanted, " more");
  return AsTransient(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(folder_.string(), ": the disk is nearly full: ", *free,
                                                           " bytes are free", more, ", and --min-free-disk keeps ",
                                                           bytes_, "; delete datasets or jobs, or give it more room")),
                 "DISK_NEARLY_FULL", {{"free", absl::StrCat(*free)}, {"reserve", absl::StrCat(bytes_)}}));
}

}  // namespace permafrost
