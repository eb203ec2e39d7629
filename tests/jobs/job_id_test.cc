#include "jobs/job.h"

#include <gtest/gtest.h>

#include <set>

namespace permafrost::jobs {
namespace {

TEST(JobIdTest, IsValidSortsByTimeAndDiffers) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  std::set<JobId> ids;
  for (int i = 0; i < 100; ++i) {
    const JobId id = MakeJobId(time);
    EXPECT_TRUE(CheckIdSyntax("job_id", id.value()).ok()) << id.value();
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_LT(*ids.rbegin(), MakeJobId(time + absl::Seconds(1)));
}

}  // namespace
}  // namespace permafrost::jobs
