#include "jobs/job_id.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace permafrost::jobs {

JobId MakeJobId(absl::Time time) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, sizeof(kLetters) - 2);
  std::string end;
  for (int i = 0; i < 6; ++i) end += kLetters[letter(random)];
  return JobId(absl::StrCat("job-", absl::FormatTime("%Y%m%d-%H%M%S", time, absl::UTCTimeZone()), "-", end));
}

}  // namespace permafrost::jobs
