#include "client/format.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/spec_file.h"
#include "client/spec_rows.h"

namespace permafrost::client {
namespace {

TEST(TimeText, DurationsWithDaysAndWithout) {
  EXPECT_EQ(ParseDurationText("90s"), absl::Seconds(90));
  EXPECT_EQ(ParseDurationText("1h30m"), absl::Minutes(90));
  EXPECT_EQ(ParseDurationText("2d"), absl::Hours(48));
  EXPECT_EQ(ParseDurationText("1.5d"), absl::Hours(36));
  for (const char* bad : {"", "d", "12", "inf", "-inf", "1e300d", "nand", "soon", "1h x"}) {
    EXPECT_EQ(ParseDurationText(bad), std::nullopt) << bad;
  }
}

TEST(TimeText, TimesAreOfTheClockOrAhead) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(ParseTimeText("2023-11-14T22:13:20Z", now), now);
  EXPECT_EQ(ParseTimeText("2023-11-14T23:13:20+01:00", now), now);
  EXPECT_EQ(ParseTimeText("12h", now), now + absl::Hours(12));
  for (const char* bad : {"", "tomorrow", "2023-11-14", "infinite-future", "12"}) {
    EXPECT_EQ(ParseTimeText(bad, now), std::nullopt) << bad;
  }
}

TEST(TimeText, AJobFileTakesBoth) {
  const auto request =
      ParseSpec("job.yaml", SpecSyntax::kYaml, "dataset: zinc\nmax_runtime: 2h\ndeadline: 2033-01-01T00:00:00Z\n");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(ToDuration(request->spec().max_runtime()), absl::Hours(2));
  EXPECT_EQ(ToTime(request->spec().deadline()), absl::FromUnixSeconds(1'988'150'400));
  const auto bad = ParseSpec("job.yaml", SpecSyntax::kYaml, "dataset: zinc\nmax_runtime: long\n");
  EXPECT_EQ(bad.status().message(), absl::StrCat("job.yaml:2: max_runtime: 'long'; accepted: ", kAcceptedDuration));
  v1::JobSpec spec;
  const auto path = FindSpecField("max-runtime");
  ASSERT_TRUE(path.ok()) << path.status();
  SetSpecField(*path, {"30m"}, spec);
  EXPECT_EQ(ToDuration(spec.max_runtime()), absl::Minutes(30)) << "a sweep may vary it";
}

}  // namespace
}  // namespace permafrost::client
