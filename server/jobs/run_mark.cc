#include "jobs/run_mark.h"

#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#ifdef __APPLE__
#include <sys/sysctl.h>

#include <cstring>
#endif

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace permafrost::jobs {
namespace {

// As wide as any step, so that each write covers the one before.
std::string StepText(int64_t step) { return absl::StrFormat("%20d\n", step); }

}  // namespace

std::string BootId() {
#ifdef __APPLE__
  char text[64];
  size_t size = sizeof text;
  if (sysctlbyname("kern.bootsessionuuid", text, &size, nullptr, 0) != 0) return "";
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text, strnlen(text, size))));
#else
  const absl::StatusOr<std::string> text = ReadFile("/proc/sys/kernel/random/boot_id");
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
#endif
}

std::string PlaceText(const Deaths& deaths) {
  return deaths.step == RunMark::kBeforeFirstStep ? "before its first step" : absl::StrCat("after step ", deaths.step);
}

absl::StatusOr<RunMark> RunMark::Begin(const std::filesystem::path& path) {
  const std::string head = absl::StrCat(BootId(), " ");
  // Whole or not at all: half a mark would be of no boot.
  PF_RETURN_IF_ERROR(WriteFileAtomic(path, head + StepText(kBeforeFirstStep)));
  Descriptor file = OpenRetrying(path, O_WRONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  return RunMark(std::move(file), head.size());
}

void RunMark::SetStep(int64_t step) {
  const std::string text = StepText(step);
  [[maybe_unused]] const ssize_t written =
      pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(step_offset_));
}

std::optional<RunMark::Content> RunMark::Read(const std::filesystem::path& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(*text, absl::MaxSplits(' ', 1));
  Content content;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &content.step)) return std::nullopt;
  content.boot_id = parts[0];
  return content;
}

Deaths CountDeath(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                  int64_t checkpoint_step) {
  if (!mark || mark->boot_id != boot_id) return before;
  const bool same_place = before.count > 0 && before.step == mark->step &&
                          (mark->step != RunMark::kBeforeFirstStep || checkpoint_step <= before.checkpoint_step);
  return {same_place ? before.count + 1 : 1, mark->step, checkpoint_step};
}

Deaths CountDeviceFault(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                        int64_t checkpoint_step) {
  if (!mark || mark->boot_id != boot_id) return before;
  const bool same_place = before.count > 0 && (before.step == mark->step || checkpoint_step <= before.checkpoint_step);
  return {same_place ? before.count + 1 : 1, mark->step, checkpoint_step};
}

}  // namespace permafrost::jobs
