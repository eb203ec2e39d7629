#include "data/store/store_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <vector>

#include "temp_dir.h"

namespace permafrost::data {
namespace {

TEST(GraphSetWriter, ObeysAStopWhileItJoinsTheSections) {
  for (const bool stopped : {false, true}) {
    TempDir temp;
    std::stop_source stop;
    GraphSetWriter writer(temp.path(), stop.get_token());
    const std::vector<uint32_t> rows(3 << 20);
    ASSERT_TRUE(writer.Write(SectionKind::kEdgeSource, ElementType::kUint32, std::span<const uint32_t>(rows)).ok());
    if (stopped) stop.request_stop();
    GraphSetSummary summary;
    const absl::Status status = writer.Finish(summary);
    const auto path = temp.path() / GraphSet::kFileName;
    if (!stopped) {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(std::filesystem::file_size(path), summary.store_bytes);
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_LT(std::filesystem::file_size(path), rows.size()) << "the rows were not copied first";
  }
}

}  // namespace
}  // namespace permafrost::data
