#include "client/format.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

TEST(Format, DurationsReadAsPeopleSayThem) {
  const struct {
    const char* why;
    absl::Duration d;
    const char* want;
  } kCases[] = {
      {"zero", absl::ZeroDuration(), "0.00 s"},
      {"a clock that went back", absl::Seconds(-3), "0.00 s"},
      {"short ones keep hundredths", absl::Milliseconds(523), "0.52 s"},
      {"below ten after rounding", absl::Milliseconds(9994), "9.99 s"},
      {"ten after rounding drops a digit", absl::Milliseconds(9996), "10.0 s"},
      {"never 60.0 s", absl::Milliseconds(59960), "1m 00s"},
      {"minutes", absl::Seconds(112), "1m 52s"},
      {"hours", absl::Seconds(2 * 3600 + 5 * 60 + 59), "2h 05m"},
      {"days", absl::Hours(76), "3d 04h"},
  };
  for (const auto& c : kCases) EXPECT_EQ(DurationText(c.d), c.want) << c.why;
  EXPECT_EQ(EtaText(absl::Milliseconds(8600)), "9s");
  EXPECT_EQ(EtaText(absl::Milliseconds(59600)), "1m 00s");
}

TEST(Format, AgesGrowCoarser) {
  const absl::TimeZone utc = absl::UTCTimeZone();
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2026, 3, 10, 12, 0, 0), utc);
  const struct {
    const char* why;
    absl::Duration ago;
    const char* want;
  } kCases[] = {
      {"a server whose clock is ahead", absl::Seconds(-30), "just now"},
      {"seconds", absl::Seconds(12), "12s ago"},
      {"minutes, rounded down", absl::Seconds(239), "3m ago"},
      {"hours", absl::Hours(5), "5h ago"},
      {"days", absl::Hours(80), "3d ago"},
      {"after a week a date is shorter to understand", absl::Hours(24 * 8), "2026-03-02"},
  };
  for (const auto& c : kCases) EXPECT_EQ(AgeText(now - c.ago, now, utc), c.want) << c.why;
  EXPECT_EQ(ClockText(now, absl::FixedTimeZone(3600)), "2026-03-10 13:00:00") << "in the reader's zone";
}

TEST(Format, SizesAndCountsHaveThreeDigits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1000), "1.00 kB");
  EXPECT_EQ(BytesText(45'600'000), "45.6 MB");
  EXPECT_EQ(BytesText(999'600), "1.00 MB") << "never 1000 kB";
  EXPECT_EQ(BytesText(-1), "0 B");
  EXPECT_EQ(ShortText(950), "950");
  EXPECT_EQ(ShortText(21'437), "21.4k");
  EXPECT_EQ(ShortText(1'234'567), "1.23M");
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(103'425), "103,425");
  EXPECT_EQ(CountText(-1'234'567), "-1,234,567");
  EXPECT_EQ(CountText(-123), "-123");
}

TEST(Format, MetricsKeepWhatMatters) {
  EXPECT_EQ(MetricText(0), "0.0000");
  EXPECT_EQ(MetricText(0.31214), "0.3121");
  EXPECT_EQ(MetricText(-0.5), "-0.5000");
  EXPECT_EQ(MetricText(12.3456), "12.346");
  EXPECT_EQ(MetricText(0.000012), "1.20e-05") << "small ones do not become 0.0000";
  EXPECT_EQ(MetricText(2.5e7), "2.50e+07");
  EXPECT_EQ(MetricText(std::nan("")), "nan");
  EXPECT_EQ(MetricText(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(ExactText(1e-3), "0.001");
  EXPECT_EQ(ExactText(0.1 + 0.2), "0.30000000000000004");
}

TEST(Format, SharesAreZeroOrWholeOnlyWhereTheyAre) {
  const struct {
    int64_t part, whole;
    const char* want;
  } kCases[] = {
      {0, 0, "0.0 %"},        {0, 10, "0.0 %"},         {10, 10, "100 %"},
      {1, 3, "33.3 %"},       {1, 1'000'000, "<0.1 %"}, {999'999, 1'000'000, ">99.9 %"},
      {999, 1'000, "99.9 %"}, {1, 1'000, "0.1 %"},
  };
  for (const auto& c : kCases) EXPECT_EQ(ShareText(c.part, c.whole), c.want) << c.part << "/" << c.whole;
}

TEST(Format, ServerTextCannotMoveTheCursor) {
  EXPECT_EQ(OneLine("a\nb\x1b[2Jc\x7f"), "a b [2Jc ");
  EXPECT_EQ(OneLine("±"), "±");
}

TEST(Format, WidthCountsCodePoints) { EXPECT_EQ(DisplayWidth("1 ± 2 ━"), 7); }

TEST(Format, ResourceNamesAreOptional) {
  EXPECT_EQ(StripCollection("jobs", "jobs/zinc"), "zinc");
  EXPECT_EQ(StripCollection("jobs", "zinc"), "zinc");
  EXPECT_EQ(WithCollection("jobs", "zinc"), "jobs/zinc");
  EXPECT_EQ(WithCollection("jobs", "jobs/zinc"), "jobs/zinc");
  for (const char* name : {"zinc", "jobs/zinc", "jobs/zinc/graphCache", "zinc/graphCache"}) {
    EXPECT_EQ(CacheName(name), "jobs/zinc/graphCache") << name;
    EXPECT_EQ(CacheJob(name), "zinc") << name;
  }
}

}  // namespace
}  // namespace permafrost::client
