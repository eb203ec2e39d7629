#include "data/disk/disk_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::HasSubstr;

TEST(ChooseDepth, TheSmallestWithinFivePercentOfTheBest) {
  const struct {
    const char* why;
    std::vector<DepthSample> samples;
    int want;
  } kCases[] = {
      {"nothing is known", {}, 1},
      {"all alike", {{1, 100}, {2, 100}, {4, 100}}, 1},
      {"rises to the end", {{1, 100}, {2, 190}, {4, 360}}, 4},
      {"4 % less is as good", {{8, 240}, {16, 253}, {32, 264}, {64, 262}}, 16},
      {"6 % less is not", {{16, 248}, {32, 264}, {64, 262}}, 32},
      {"in any order", {{64, 262}, {32, 264}, {16, 253}}, 16},
      {"worse beyond", {{1, 264}, {2, 200}}, 1},
  };
  for (const auto& c : kCases) EXPECT_EQ(ChooseDepth(c.samples), c.want) << c.why;
}

TEST(FitReads, AStraightLine) {
  // A request costs 12 us, and a byte costs 1 ns.
  const auto at = [](double bytes) { return ReadSample{bytes, 12e-6 + 1e-9 * bytes}; };
  const ReadLine line = FitReads(std::vector{at(4096), at(16384), at(65536)});
  EXPECT_NEAR(line.seconds_per_read, 12e-6, 1e-12);
  EXPECT_NEAR(line.seconds_per_byte, 1e-9, 1e-16);
}

TEST(FitReads, ErrorsCountByTheirPart) {
  // The longest read is 5 % off. A line that fits it exactly but misses the shortest read by half would be worse.
  const ReadLine line = FitReads(
      std::vector<ReadSample>{{4096, 12e-6 + 4096e-9}, {16384, 12e-6 + 16384e-9}, {65536, 1.05 * (12e-6 + 65536e-9)}});
  EXPECT_NEAR((line.seconds_per_read + 4096 * line.seconds_per_byte) / 16.096e-6, 1, 0.02);
}

TEST(FitReads, NoPartIsBelowZero) {
  const ReadLine rising = FitReads(std::vector<ReadSample>{{4096, 1e-6}, {16384, 8e-6}, {65536, 40e-6}});
  EXPECT_EQ(rising.seconds_per_read, 0);
  EXPECT_GT(rising.seconds_per_byte, 0);
  const ReadLine falling = FitReads(std::vector<ReadSample>{{4096, 9e-6}, {16384, 8e-6}, {65536, 7e-6}});
  EXPECT_EQ(falling.seconds_per_byte, 0);
  EXPECT_GT(falling.seconds_per_read, 7e-6);
  EXPECT_LT(falling.seconds_per_read, 9e-6);
  const ReadLine one = FitReads(std::vector<ReadSample>{{4096, 4.096e-6}});
  EXPECT_EQ(one.seconds_per_read, 0);
  EXPECT_NEAR(one.seconds_per_byte, 1e-9, 1e-15);
  const ReadLine none = FitReads({});
  EXPECT_EQ(none.seconds_per_read + none.seconds_per_byte, 0);
}

TEST(DiskRates, AGapIsReadWhereThatCostsLessThanARequest) {
  DiskRates rates{.seconds_per_read = 12e-6, .seconds_per_byte = 1e-9};
  EXPECT_EQ(rates.gap_bytes(), 8192U) << "12,000 bytes, in whole pages";
  EXPECT_DOUBLE_EQ(rates.SecondsFor(10, 1000), 121e-6);
  rates.seconds_per_read = 1e-6;
  EXPECT_EQ(rates.gap_bytes(), 0U);
  rates.seconds_per_read = 8e-3;
  EXPECT_EQ(rates.gap_bytes(), 1U << 20) << "of a disk that turns: 8 MB would be too much";
  rates.seconds_per_byte = 0;
  EXPECT_EQ(rates.gap_bytes(), 1U << 20);
  EXPECT_EQ(DiskRates{}.gap_bytes(), 0U);
}

class MeasureDiskTest : public testing::TestWithParam<size_t> {};

TEST_P(MeasureDiskTest, RatesArePositive) {
  const TempDir dir;
  const size_t bytes = GetParam();
  std::ofstream(dir.path() / "store.pfg", std::ios::binary) << std::string(bytes, 'x');
  for (const DiskReaderKind kind : {DiskReaderKind::kUring, DiskReaderKind::kPread}) {
    const auto rates = MeasureDisk(dir.path() / "store.pfg", 0, bytes, {.seconds = 0.02, .kind = kind});
    if (absl::IsFailedPrecondition(rates.status())) continue;  // io_uring is not available here
    ASSERT_TRUE(rates.ok()) << rates.status();
    EXPECT_EQ(rates->kind, kind);
    EXPECT_GE(rates->depth, 1);
    EXPECT_LE(rates->depth, 64);
    EXPECT_GE(rates->seconds_per_read, 0);
    EXPECT_GE(rates->seconds_per_byte, 0);
    const double page = rates->SecondsFor(1, kDiskPageBytes);
    EXPECT_TRUE(std::isfinite(page) && page > 0) << page;
    EXPECT_TRUE(std::isfinite(rates->sequential_bytes_per_second) && rates->sequential_bytes_per_second > 0);
    EXPECT_THAT(rates->how,
                testing::AllOf(HasSubstr(std::string(kDiskReaderKindNames.Name(kind))), HasSubstr("GB of store.pfg"),
                               HasSubstr("so few bytes that the disk's own cache may have answered")));
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, MeasureDiskTest, testing::Values(4096, 10000, 100000, 3000000));

TEST(MeasureDisk, ARangeWithoutAPageIsRefused) {
  const TempDir dir;
  const std::filesystem::path file = dir.path() / "store.pfg";
  std::ofstream(file, std::ios::binary) << std::string(10000, 'x');
  const struct {
    uint64_t first, bytes;
  } kCases[] = {{0, 0}, {0, 4095}, {100, 8000}, {8192, 4096}, {20000, 4096}, {uint64_t{1} << 63, uint64_t{1} << 63}};
  for (const auto& c : kCases) {
    const absl::Status refused = MeasureDisk(file, c.first, c.bytes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << c.first << " " << c.bytes << refused;
  }
  EXPECT_TRUE(absl::IsNotFound(MeasureDisk(dir.path() / "none", 0, 4096).status()));
}

}  // namespace
}  // namespace permafrost
