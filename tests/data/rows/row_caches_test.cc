#include "data/rows/row_caches.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/graph_fixture.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kMegabyte = 1'000'000;

class RowCachesTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kNodes = 10'000;
  static constexpr uint32_t kWidth = 1000;  // 41 MB in pages of 4096 bytes

  void SetUp() override { graph_ = MakeGraph("one", DataType::kFloat32); }
  std::shared_ptr<const Graph> MakeGraph(const std::string& name, DataType features) {
    TestGraph graph = MakeTestGraph({.nodes = kNodes, .edges = 3000, .features = features});
    if (features != DataType::kNone) {
      graph.Drop(SectionKind::kNodeFeatures);
      graph.Add(SectionKind::kNodeFeatures, ElementType::kFloat32, std::vector<float>(kNodes * kWidth, 1.5f), kWidth);
      graph.summary.node_features.width = kWidth;
    }
    EXPECT_TRUE(graph.Write(temp_.path() / name).ok());
    return *Graph::Open(temp_.path() / name);
  }
  RowCaches Make(FeatureReader reader, uint64_t budget = 0) {
    return RowCaches({.reader = reader,
                      .budget_bytes = budget,
                      .memory_left = [this] { return memory_; },
                      .return_free_heap = [this] { ++returned_; },
                      .mapped_bytes = [this](const auto&) { return mapped_; },
                      .rates = DiskRates{.depth = 3},
                      .log = [this](std::string_view line) { log_.emplace_back(line); }});
  }
  void Leave(uint64_t bytes) { memory_ = MemoryLeft{.limit = 1000 * kMegabyte, .used = 0, .left = bytes}; }
  static void Read(RowCache& cache, NodeId first, NodeId last) {
    std::vector<NodeId> rows(last - first);
    std::iota(rows.begin(), rows.end(), first);
    ASSERT_TRUE(cache.Pin(rows, {}, /*must=*/true)->Await().ok());
  }
  // Calls Adapt for `time`, as the steps of a job would.
  static void AdaptFor(RowCaches& caches, RowCache& cache, std::chrono::milliseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
      caches.Adapt(cache);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  TempDir temp_;
  std::shared_ptr<const Graph> graph_;
  std::optional<MemoryLeft> memory_ = MemoryLeft{.limit = 1000 * kMegabyte, .used = 0, .left = 900 * kMegabyte};
  int returned_ = 0;
  uint64_t mapped_ = 0;
  std::vector<std::string> log_;
};

TEST_F(RowCachesTest, FeaturesThatMemoryHoldsAreMapped) {
  RowCaches caches = Make(FeatureReader::kAuto);
  const auto session = caches.Open(graph_, 100 * kMegabyte);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->cache, nullptr);
  EXPECT_EQ(session->line, "features: 41 MB read through the mapping: memory has 750 MB left for them");
}

TEST_F(RowCachesTest, OthersAreReadWithinHalfOfWhatIsLeftAtFirst) {
  RowCaches caches = Make(FeatureReader::kAuto);
  Leave(190 * kMegabyte);
  const auto session = caches.Open(graph_, 100 * kMegabyte);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_NE(session->cache, nullptr);
  EXPECT_EQ(session->cache->counters().budget_bytes / kMegabyte, 19u) << "the job, the edges and a reserve come first";
  EXPECT_NE(
      session->line.find(", 12 at once; a cache of 20 MB (49 % of the rows) at first: memory has 40 MB left for them"),
      std::string::npos)
      << session->line;
  Read(*session->cache, 0, 100);
}

TEST_F(RowCachesTest, ABudgetThatIsGivenIsKept) {
  RowCaches caches = Make(FeatureReader::kPread, 30 * kMegabyte);
  const auto session = caches.Open(graph_, 0);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_NE(session->cache, nullptr);
  EXPECT_EQ(session->cache->reader().kind, "pread");
  EXPECT_NE(session->line.find("a cache of 30 MB (73 % of the rows), as asked for"), std::string::npos)
      << session->line;
  Leave(0);
  AdaptFor(caches, *session->cache, std::chrono::milliseconds(250));
  EXPECT_EQ(session->cache->counters().budget_bytes, 30 * kMegabyte);
}

TEST_F(RowCachesTest, WhatCannotBeReadPastTheMappingSaysWhy) {
  RowCaches caches = Make(FeatureReader::kUring);
  EXPECT_EQ(caches.Open(MakeGraph("sparse", DataType::kNone), 0)->line,
            "features: read through the mapping: they are sparse");
  const auto path = temp_.path() / "one" / Graph::kFileName;
  ASSERT_TRUE(WriteFileAtomic(path, StoreImage(*ReadFile(path)).AsVersion(2)).ok());
  EXPECT_EQ(caches.Open(*Graph::Open(temp_.path() / "one"), 0)->line,
            "features: read through the mapping: the store is of an older version; import it again");
}

// Features that fit in memory are read ahead as a whole, whether the user or the cache chose the mapping.
TEST_F(RowCachesTest, MappedFeaturesAreReadAheadWhereMemoryHoldsThem) {
  for (const FeatureReader reader : {FeatureReader::kAuto, FeatureReader::kMapped}) {
    RowCaches caches = Make(reader);
    EXPECT_EQ(caches.Open(graph_, 0)->ahead.size(), 1u);
  }
  Leave(30 * kMegabyte);
  RowCaches mapped = Make(FeatureReader::kMapped);
  const auto session = mapped.Open(graph_, 0);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->cache, nullptr);
  EXPECT_EQ(session->line, "features: read through the mapping: as asked for");
  EXPECT_TRUE(session->ahead.empty());
}

TEST_F(RowCachesTest, RowsAreKeptFromJobToJobUntilAnotherDatasetIsUsed) {
  RowCaches caches = Make(FeatureReader::kUring, 30 * kMegabyte);
  Read(*caches.Open(graph_, 0)->cache, 0, 1000);
  {
    const auto again = *caches.Open(*Graph::Open(temp_.path() / "one"), 0);
    EXPECT_EQ(again.cache->counters().rows, 1000u);
    Read(*again.cache, 0, 1000);
    EXPECT_EQ(again.cache->counters().misses, 1000);
  }
  const auto other = MakeGraph("other", DataType::kFloat32);
  EXPECT_EQ(caches.Open(other, 0)->cache->counters().rows, 0u);
  EXPECT_EQ(caches.Open(graph_, 0)->cache->counters().rows, 0u);
}

TEST_F(RowCachesTest, MemoryThatGetsShortIsGivenBackAfterTheHeapsAndTakenAgain) {
  RowCaches caches = Make(FeatureReader::kAuto);
  Leave(190 * kMegabyte);
  const auto session = *caches.Open(graph_, 100 * kMegabyte);
  Read(*session.cache, 0, 1000);
  const auto budget = [&] { return session.cache->counters().budget_bytes; };
  const uint64_t first = budget();
  Leave(95 * kMegabyte);
  AdaptFor(caches, *session.cache, std::chrono::milliseconds(150));
  EXPECT_EQ(returned_, 1) << "what the captures left over";
  EXPECT_EQ(budget(), first) << "neither short nor plenty";
  Leave(20 * kMegabyte);
  AdaptFor(caches, *session.cache, std::chrono::milliseconds(150));
  EXPECT_EQ(budget(), uint64_t{16} << 20) << "some is kept whatever happens";
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("feature cache: 17 MB (41 % of the rows) from here on, 20 MB before: memory has 20 MB left"),
            std::string::npos)
      << log_[0];
}

TEST_F(RowCachesTest, ABudgetGrowsWhereTheJobTakesLess) {
  RowCaches caches = Make(FeatureReader::kAuto);
  Leave(190 * kMegabyte);
  const auto session = *caches.Open(graph_, 100 * kMegabyte);
  Read(*session.cache, 0, 100);
  const uint64_t first = session.cache->counters().budget_bytes;
  AdaptFor(caches, *session.cache, std::chrono::milliseconds(2300));
  EXPECT_GT(session.cache->counters().budget_bytes, first);
  EXPECT_LE(session.cache->counters().budget_bytes, session.cache->MostBytes());
  ASSERT_FALSE(log_.empty());
  EXPECT_NE(log_.front().find("from here on, 20 MB before: memory has 190 MB left"), std::string::npos) << log_.front();
  const uint64_t grown = session.cache->counters().budget_bytes;
  Leave(10 * kMegabyte);
  AdaptFor(caches, *session.cache, std::chrono::milliseconds(1200));
  EXPECT_LT(session.cache->counters().budget_bytes, grown);
  EXPECT_GE(returned_, 2) << "the heap's first";
  EXPECT_LE(session.cache->counters().used_bytes, session.cache->counters().budget_bytes);
}

TEST_F(RowCachesTest, EdgesThatAreMappedAlreadyAreNotTakenTwice) {
  const auto budget = [this](uint64_t mapped) {
    mapped_ = mapped;
    RowCaches caches = Make(FeatureReader::kUring);
    Leave(190 * kMegabyte);
    return caches.Open(graph_, 100 * kMegabyte)->cache->counters().budget_bytes;
  };
  const auto edges = static_cast<uint64_t>(graph_->summary().adjacency_bytes);
  ASSERT_GT(edges, 1000u);
  const uint64_t none = budget(0);
  EXPECT_EQ(budget(edges), none + edges / 2);
  EXPECT_EQ(budget(20 * kMegabyte), none) << "features are mapped, and perhaps no edges";
}

TEST_F(RowCachesTest, OneSessionReadsAtATime) {
  RowCaches caches = Make(FeatureReader::kPread, 30 * kMegabyte);
  auto first = *caches.Open(graph_, 0);
  ASSERT_NE(first.cache, nullptr);
  const auto second = *caches.Open(graph_, 0);
  EXPECT_EQ(second.cache, nullptr);
  EXPECT_EQ(second.line, "features: read through the mapping: another job reads past it");
  Read(*first.cache, 0, 100);
  first = {};
  EXPECT_NE(caches.Open(graph_, 0)->cache, nullptr);
}

TEST_F(RowCachesTest, BetweenJobsRowsLeaveMemoryForImportsAndGoWhereAJobDoesNotSample) {
  RowCaches caches = Make(FeatureReader::kUring);
  Leave(500 * kMegabyte);
  {
    const auto session = *caches.Open(graph_, 0);
    Read(*session.cache, 0, 4000);
    Leave(325 * kMegabyte);
  }
  // 8 MB of some 16 MB are given back, so that a third of 1,000 MB stays free.
  Leave(500 * kMegabyte);
  const uint64_t kept = caches.Open(graph_, 0)->cache->counters().rows;
  EXPECT_LT(kept, 3000u);
  EXPECT_GT(kept, 1000u);
  caches.Drop();
  EXPECT_EQ(caches.Open(graph_, 0)->cache->counters().rows, 0u);
}

}  // namespace
}  // namespace permafrost::data
