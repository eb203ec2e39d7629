#include "data/store/format.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/graph_fixture.h"
#include "data/store/graph.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

uint64_t PagesOf(uint64_t begin, uint64_t bytes) {
  return (begin + bytes + kPageBytes - 1) / kPageBytes - begin / kPageBytes;
}

TEST(RowGroups, NoRowLiesOnAPageMoreThanItMust) {
  for (uint64_t row_bytes = 1; row_bytes < 20'000; row_bytes += row_bytes < 5000 ? 1 : 7) {
    const RowGroups groups = GroupsFor(row_bytes);
    if (groups.rows == 0) continue;
    SCOPED_TRACE(row_bytes);
    uint64_t end = 0;
    for (uint64_t row = 0; row < 3 * uint64_t{groups.rows}; ++row) {
      const uint64_t begin = groups.OffsetOf(row, row_bytes);
      ASSERT_GE(begin, end) << row;
      ASSERT_EQ(PagesOf(begin, row_bytes), PagesOf(0, row_bytes)) << row;
      end = begin + row_bytes;
      ASSERT_EQ(groups.TotalBytes(row + 1, row_bytes), end);
    }
    ASSERT_LE(groups.bytes, 1.25 * static_cast<double>(groups.rows * row_bytes)) << "a quarter of gaps at most";
    ASSERT_EQ(PagesOfRow(groups, row_bytes), PagesOf(0, row_bytes));
  }
}

TEST(RowGroups, AreMadeWhereTheyGain) {
  EXPECT_EQ(GroupsFor(4000), (RowGroups{1, 4096}));
  EXPECT_EQ(GroupsFor(400), (RowGroups{10, 4096}));
  EXPECT_EQ(GroupsFor(5000), (RowGroups{4, 20480}));
  EXPECT_EQ(GroupsFor(512), RowGroups()) << "eight of them fill a page";
  EXPECT_EQ(GroupsFor(8192), RowGroups());
  EXPECT_EQ(GroupsFor(2100), RowGroups()) << "half of each page would be lost";
  EXPECT_EQ(GroupsFor(0), RowGroups());
  EXPECT_EQ(PagesOfRow({}, 4000), 1.96875);
  EXPECT_EQ(PagesOfRow({}, 512), 1);
  EXPECT_EQ(PagesOfRow({}, 0), 0);
}

// A graph of wide rows. Each value encodes its row and column.
class StoredRowsTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint64_t kNodes = 700;
  uint32_t width() const { return GetParam(); }
  float Value(uint64_t row, uint32_t column) const {
    return static_cast<float>(row) + static_cast<float>(column) / 2048;
  }

  void Write(bool packed_rows) {
    TestGraph graph = MakeTestGraph({.nodes = kNodes, .edges = 2000});
    std::vector<float> values;
    for (uint64_t row = 0; row < kNodes; ++row) {
      for (uint32_t c = 0; c < width(); ++c) values.push_back(Value(row, c));
    }
    graph.Drop(SectionKind::kNodeFeatures);
    graph.Add(SectionKind::kNodeFeatures, ElementType::kFloat32, values, width());
    graph.summary.node_features.width = width();
    ASSERT_TRUE(graph.Write(temp_.path(), packed_rows).ok());
  }
  void ExpectValues(const Graph& graph) const {
    const auto& dense = std::get<DenseFeatures>(graph.view().node_features);
    std::vector<float> out(kNodes * width());
    ASSERT_TRUE(ReadRows(dense, 0, kNodes, out.data()).ok());
    for (uint64_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], Value(i / width(), static_cast<uint32_t>(i % width()))) << i;
    }
    ASSERT_TRUE(ReadRows(dense, 333, 421, out.data()).ok());
    EXPECT_EQ(out[0], Value(333, 0));
    EXPECT_EQ(out[88 * width() - 1], Value(420, width() - 1));
    EXPECT_TRUE(graph.VerifyAll(nullptr).ok());
  }

  TempDir temp_;
};

INSTANTIATE_TEST_SUITE_P(Widths, StoredRowsTest, ::testing::Values(1000u, 100u, 1250u, 1024u, 525u, 3u));

TEST_P(StoredRowsTest, AreReadAsTheyWereWritten) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed);
    Write(packed);
    const auto graph = *Graph::Open(temp_.path());
    ExpectValues(*graph);
    const auto stored = graph->stored_features();
    ASSERT_TRUE(stored);
    EXPECT_EQ(stored->groups, packed ? RowGroups() : GroupsFor(width() * 4));
    EXPECT_EQ(stored->offset % kPageBytes, 0u);
    EXPECT_EQ(stored->row_bytes, width() * 4);
    EXPECT_EQ(stored->rows, kNodes);
    EXPECT_EQ(stored->page_checksums.size(), (stored->bytes + kPageBytes - 1) / kPageBytes);
    const std::string file = *ReadFile(stored->path);
    float last = 0;
    file.copy(reinterpret_cast<char*>(&last), sizeof last, stored->offset + stored->bytes - sizeof last);
    EXPECT_EQ(last, Value(kNodes - 1, width() - 1)) << "the last row ends the table";
  }
}

TEST_P(StoredRowsTest, AStoreOfVersion2IsReadAsBefore) {
  Write(false);
  const auto path = temp_.path() / Graph::kFileName;
  const std::string old = StoreImage(*ReadFile(path)).AsVersion(2);
  ASSERT_TRUE(WriteFileAtomic(path, old).ok());
  const auto graph = Graph::Open(temp_.path());
  ASSERT_TRUE(graph.ok()) << graph.status();
  ExpectValues(**graph);
  EXPECT_FALSE((*graph)->stored_features()) << "it has no checksum for a page";
}

}  // namespace
}  // namespace permafrost::data
