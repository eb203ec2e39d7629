// Tests the table of predictions: written piece by piece, it equals one written at once.
#include "train/loop/artifacts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "file_size_limit.h"
#include "temp_dir.h"
#include "train/runner.h"

namespace permafrost::train {
namespace {

class PredictionsFileTest : public testing::Test {
 protected:
  // Returns rows of two columns and three values.
  static NamedRows NamesOf(std::span<const uint32_t> ids) {
    NamedRows rows{.columns = {"source", "target"}, .names = {}, .values = {"a", "b", "c"}};
    for (const uint32_t id : ids) {
      rows.names.push_back("the \"" + std::to_string(id) + "\"");
      rows.names.push_back(std::to_string(id) + ", or so");
    }
    return rows;
  }
  absl::Status Write(const NameRows& name) { return WritePredictions(dir_.path(), name, ids_, values_); }
  std::string Written() const {
    const auto data = ReadFile(dir_.path() / "artifacts" / kTestPredictionsFile);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }
  int64_t FilesBeside() const {
    return std::distance(std::filesystem::directory_iterator(dir_.path() / "artifacts"), {});
  }
  void TakeRows(size_t rows) {
    ids_.resize(rows);
    std::iota(ids_.begin(), ids_.end(), 7U);
    values_.resize(3 * rows);
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = 1.0F / static_cast<float>(i + 1);
  }

  const TempDir dir_;
  std::vector<uint32_t> ids_;
  std::vector<float> values_;
};

TEST(PredictionsCsv, LeavesACellEmptyWhereAValueMayBeMissing) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const NamedRows rows{.columns = {"source", "target", "time"},
                       .names = {"a", "b", "7", "c", "d", "-8"},
                       .values = {"score", "rank"},
                       .empty_nan = 1};
  EXPECT_EQ(PredictionsCsv(rows, std::vector<float>{0.5, none, none, 2}),
            "source,target,time,score,rank\na,b,7,0.5,\nc,d,-8,nan,2\n");
}

TEST_F(PredictionsFileTest, IsThatOfAllRowsTogetherThoughFewHaveNamesAtOnce) {
  for (const size_t rows : {size_t{0}, size_t{1}, kNamedAtOnce, 3 * kNamedAtOnce + 5}) {
    TakeRows(rows);
    size_t most = 0, all = 0;
    const absl::Status written = Write([&](std::span<const uint32_t> ids) {
      most = std::max(most, ids.size());
      all += ids.size();
      return NamesOf(ids);
    });
    ASSERT_TRUE(written.ok()) << written;
    EXPECT_EQ(Written(), PredictionsCsv(NamesOf(ids_), values_)) << rows;
    EXPECT_EQ(all, rows);
    EXPECT_LE(most, kNamedAtOnce);
    EXPECT_EQ(FilesBeside(), 1) << "nothing else stays";
  }
}

TEST_F(PredictionsFileTest, WhatCannotBeWrittenWholeLeavesTheOneBefore) {
  TakeRows(2);
  ASSERT_TRUE(Write(NamesOf).ok());
  const std::string before = Written();
  TakeRows(2 * kNamedAtOnce);
  const absl::Status damaged = Write([&](std::span<const uint32_t> ids) -> absl::StatusOr<NamedRows> {
    if (ids.front() != ids_.front()) return absl::DataLossError("the names are damaged");
    return NamesOf(ids);
  });
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_EQ(Written(), before);
  {
    const FileSizeLimit full(1000);
    const absl::Status refused = Write(NamesOf);
    EXPECT_TRUE(IsTransient(refused)) << refused;
  }
  EXPECT_EQ(Written(), before);
  EXPECT_EQ(FilesBeside(), 1);
}

}  // namespace
}  // namespace permafrost::train
