#ifdef __linux__

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/resources.h"
#include "telemetry/process_stats.h"

namespace permafrost::telemetry {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Unix time of the machine's boot; it does not change, but for clock corrections.
double BootTime() {
  for (absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return 0;
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // the listing itself holds one
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string stat = ReadAll("/proc/self/stat");
  // proc(5): fields are counted from 1; the second, the program's name, is in parentheses and may hold spaces.
  if (const size_t name_end = stat.rfind(')'); name_end != std::string::npos) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
    const auto field = [&](size_t number) {
      uint64_t value = 0;
      const size_t index = number - 3;
      return index < fields.size() && absl::SimpleAtoi(fields[index], &value) ? value : 0;
    };
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = static_cast<double>(field(14) + field(15)) / ticks;
    stats.threads = static_cast<int64_t>(field(20));
    stats.start_time_seconds = BootTime() + static_cast<double>(field(22)) / ticks;
    stats.virtual_bytes = field(23);
  }
  stats.resident_bytes = ResidentBytes();
  stats.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace permafrost::telemetry

#endif
