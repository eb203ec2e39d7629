#include "data/rows/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "data/graph_fixture.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

class RowCacheTest : public ::testing::TestWithParam<DiskReaderKind> {
 protected:
  static constexpr uint64_t kNodes = 2000;
  static constexpr uint32_t kWidth = 1000;

  void SetUp() override {
    TestGraph graph = MakeTestGraph({.nodes = kNodes, .edges = 3000});
    values_.resize(kNodes * kWidth);
    SplitMix64 random(5, 0);
    for (float& value : values_) value = static_cast<float>(random.Below(1000));
    graph.Drop(SectionKind::kNodeFeatures);
    graph.Add(SectionKind::kNodeFeatures, ElementType::kFloat32, values_, kWidth);
    graph.summary.node_features.width = kWidth;
    ASSERT_TRUE(graph.Write(temp_.path()).ok());
    graph_ = *Graph::Open(temp_.path());
  }
  static uint64_t Budget(uint64_t frames) {
    return kNodes * RowCache::kBytesPerRow + frames * FrameTable::FrameBytes(kWidth * sizeof(float));
  }
  // Returns a started cache with room for `frames` rows.
  std::unique_ptr<RowCache> Make(uint64_t frames, DiskReader::Options reader = {.depth = 8}) {
    auto cache = *RowCache::Create(*graph_->stored_features(), Budget(frames));
    reader.kind = GetParam();
    const absl::Status started = cache->Start(graph_, reader, 4096);
    EXPECT_TRUE(started.ok()) << started;
    return cache;
  }
  void ExpectRows(const RowCache& cache, std::span<const NodeId> rows) const {
    for (const NodeId row : rows) {
      const auto* const is = reinterpret_cast<const float*>(cache.Find(row));
      const float* const want = values_.data() + uint64_t{row} * kWidth;
      ASSERT_TRUE(std::equal(want, want + kWidth, is)) << row;
    }
  }
  static std::vector<NodeId> Rows(NodeId first, NodeId last) {
    std::vector<NodeId> rows(last - first);
    for (NodeId& row : rows) row = first++;
    return rows;
  }

  // Returns a graph in which every feature of a row is the row's number.
  static std::shared_ptr<const Graph> OpenNumbered(const std::filesystem::path& directory, uint64_t nodes,
                                                   uint32_t width) {
    TestGraph graph = MakeTestGraph({.nodes = nodes, .edges = 3000});
    graph.Drop(SectionKind::kNodeFeatures);
    std::vector<float> values;
    values.reserve(nodes * width);
    for (NodeId row = 0; row < nodes; ++row) values.insert(values.end(), width, static_cast<float>(row));
    graph.Add(SectionKind::kNodeFeatures, ElementType::kFloat32, values, width);
    graph.summary.node_features.width = width;
    EXPECT_TRUE(graph.Write(directory).ok());
    return *Graph::Open(directory);
  }

  TempDir temp_;
  std::vector<float> values_;
  std::shared_ptr<const Graph> graph_;
};

INSTANTIATE_TEST_SUITE_P(Readers, RowCacheTest, ::testing::Values(DiskReaderKind::kUring, DiskReaderKind::kPread),
                         [](const auto& kind) {
                           return std::string(kind.param == DiskReaderKind::kUring ? "Uring" : "Pread");
                         });

TEST_P(RowCacheTest, EveryRowComesAsItWasWritten) {
  const auto cache = Make(300);
  SplitMix64 random(1, 0);
  for (int batch = 0; batch < 60; ++batch) {
    std::vector<NodeId> rows, more;
    for (int i = 0; i < 100; ++i) rows.push_back(static_cast<NodeId>(random.Below(kNodes)));
    for (int i = 0; i < 100; ++i) more.push_back(static_cast<NodeId>(random.Below(kNodes)));
    auto lease = cache->Pin(rows, more, true);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(lease->Await().ok());
    ExpectRows(*cache, rows);
    ExpectRows(*cache, more);
  }
  const RowCounters counters = cache->counters();
  EXPECT_GT(counters.hits, 0);
  EXPECT_GT(counters.misses, counters.reads) << "rows that lie together come by one read";
  EXPECT_GT(counters.evictions, 0);
  EXPECT_EQ(counters.read_bytes % 4096, 0);
  EXPECT_LE(counters.used_bytes, counters.budget_bytes);
  EXPECT_EQ(std::accumulate(counters.read_seconds.begin(), counters.read_seconds.end(), int64_t{0}), counters.reads);
  EXPECT_EQ(cache->reader().kind, kDiskReaderKindNames.Name(GetParam()));
}

TEST_P(RowCacheTest, ARowInMemoryIsNotReadAgainAndEachCountsOnceABatch) {
  const auto cache = Make(100);
  const std::vector<NodeId> rows{3, 3, 9, 3}, more{9, 1999};
  {
    auto lease = *cache->Pin(rows, more, true);
    ASSERT_TRUE(lease.Await().ok());
  }
  EXPECT_EQ(cache->counters().misses, 3);
  const int64_t reads = cache->counters().reads;
  auto lease = *cache->Pin(more, rows, true);
  ASSERT_TRUE(lease.Await().ok());
  ExpectRows(*cache, rows);
  EXPECT_EQ(cache->counters().hits, 3);
  EXPECT_EQ(cache->counters().reads, reads);
}

TEST_P(RowCacheTest, RowsOfALeaseStayAndOneThatFindsNoRoomBesideOthersIsRefused) {
  const auto cache = Make(90);
  auto first = cache->Pin(Rows(0, 30), {});
  ASSERT_TRUE(first.ok());
  auto second = cache->Pin(Rows(30, 60), {});
  ASSERT_TRUE(second.ok()) << "the disk has work while the first is gathered, whatever part of the frames that takes";
  EXPECT_EQ(cache->Pin(Rows(60, 90), {}).status().code(), absl::StatusCode::kResourceExhausted)
      << "a third would leave no row that comes again";
  ASSERT_TRUE(first->Await().ok());
  ASSERT_TRUE(second->Await().ok());
  const RowCounters refused = cache->counters();
  EXPECT_EQ(refused.misses, 60) << "what was refused counts for nothing";
  ExpectRows(*cache, Rows(0, 60));
  // Rows already in memory need no room.
  EXPECT_TRUE(cache->Pin(Rows(10, 30), {}).ok());
  *first = RowCache::Lease();
  EXPECT_TRUE(cache->Pin(Rows(60, 90), {}).ok());
  EXPECT_EQ(cache->counters().over_budget, 0);
}

TEST_P(RowCacheTest, ABatchLargerThanTheBudgetIsServedWhereItMustAndCounted) {
  const auto cache = Make(10);
  const auto rows = Rows(100, 200);
  EXPECT_EQ(cache->Pin(rows, {}).status().code(), absl::StatusCode::kResourceExhausted);
  auto lease = cache->Pin(rows, {}, /*must=*/true);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_TRUE(lease->Await().ok());
  ExpectRows(*cache, rows);
  EXPECT_EQ(cache->counters().over_budget, 1);
  EXPECT_GT(cache->counters().used_bytes, cache->counters().budget_bytes);
  *lease = RowCache::Lease();
  EXPECT_LE(cache->counters().used_bytes, cache->counters().budget_bytes);
}

TEST_P(RowCacheTest, WantedRowsOutliveTheOthers) {
  const auto cache = Make(200);
  std::vector<float> draws(kNodes, 0.1f);
  for (NodeId row = 500; row < 600; ++row) draws[row] = 50;
  cache->SetExpectedDraws(draws);
  ASSERT_TRUE(cache->Pin(Rows(500, 600), {}, true)->Await().ok());
  for (NodeId first = 600; first < 1800; first += 60)
    ASSERT_TRUE(cache->Pin(Rows(first, first + 60), {}, true)->Await().ok());
  const int64_t misses = cache->counters().misses;
  ASSERT_TRUE(cache->Pin(Rows(500, 600), {}, true)->Await().ok());
  EXPECT_EQ(cache->counters().misses, misses);
}

// Rows 0..149 are read in turn with 100 frames. Without announcements, a row is always dropped before it is needed
// again, because the row dropped longest ago is the next one needed.
TEST_P(RowCacheTest, AnnouncedRowsAreKeptUntilTheyCome) {
  constexpr NodeId kRound = 150, kBatch = 10;
  constexpr int kBatches = 60, kAhead = 16;
  const auto misses = [&](bool announce) {
    const auto cache = Make(100);
    std::deque<RowCache::Announcement> announced;
    const auto rows_of = [](int batch) {
      const NodeId first = static_cast<NodeId>(batch) * kBatch % kRound;
      return Rows(first, first + kBatch);
    };
    for (int batch = 0; batch < kBatches; ++batch) {
      while (announce && std::ssize(announced) <= kAhead) {
        announced.push_back(cache->Announce(rows_of(batch + static_cast<int>(announced.size())), {}));
      }
      auto lease = cache->Pin(rows_of(batch), {}, true, announce ? &announced.front() : nullptr);
      EXPECT_TRUE(lease.ok() && lease->Await().ok());
      ExpectRows(*cache, rows_of(batch));
      if (announce) announced.pop_front();
    }
    return cache->counters().misses;
  };
  EXPECT_EQ(misses(false), int64_t{kBatches} * kBatch);
  // After the first round, Belady's algorithm would miss a third of the rows.
  EXPECT_LE(misses(true), kRound + (kBatches * kBatch - kRound) * 45 / 100);
}

// If rows are narrow, a page holds several of them. Rows of that page that batches will use need no read of their
// own.
TEST_P(RowCacheTest, AReadBringsRowsAlongThatBatchesUse) {
  const TempDir temp;
  const auto opened = OpenNumbered(temp.path(), kNodes, 100);
  const auto cache = *RowCache::Create(*opened->stored_features(), uint64_t{1} << 20);
  ASSERT_TRUE(cache->Start(opened, {.kind = GetParam(), .depth = 4}, 0).ok());

  // A page holds ten rows of 400 bytes.
  auto now = cache->Announce(std::vector<NodeId>{13}, {});
  auto later = cache->Announce(std::vector<NodeId>{11, 17, 25}, {});
  auto lease = *cache->Pin(std::vector<NodeId>{13}, {}, true, &now);
  ASSERT_TRUE(lease.Await().ok());
  RowCounters counters = cache->counters();
  EXPECT_EQ(counters.misses, 1);
  EXPECT_EQ(counters.reads, 1);
  EXPECT_EQ(counters.rows, 3u) << "13, and of its page 11 and 17";
  lease = *cache->Pin(std::vector<NodeId>{11, 17, 25}, {}, true, &later);
  ASSERT_TRUE(lease.Await().ok());
  counters = cache->counters();
  EXPECT_EQ(counters.hits, 2);
  EXPECT_EQ(counters.misses, 2) << "13 and 25";
  EXPECT_EQ(counters.reads, 2);
  for (const NodeId row : {11, 17, 25}) {
    EXPECT_EQ(*reinterpret_cast<const float*>(cache->Find(row)), static_cast<float>(row));
  }
}

// A page holds one row. Three pages cost as much as a read, so a read is extended by up to two pages for a row that a
// batch will use.
TEST_P(RowCacheTest, AReadGetsLongerForRowsThatBatchesUseSoon) {
  const auto cache = *RowCache::Create(*graph_->stored_features(), Budget(64));
  ASSERT_TRUE(cache->Start(graph_, {.kind = GetParam(), .depth = 4}, 3 * kPageBytes).ok());

  auto now = cache->Announce(std::vector<NodeId>{100}, {});
  auto soon = cache->Announce(std::vector<NodeId>{97, 98, 102, 103, 107}, {});
  auto lease = *cache->Pin(std::vector<NodeId>{100}, {}, true, &now);
  ASSERT_TRUE(lease.Await().ok());
  RowCounters counters = cache->counters();
  EXPECT_EQ(counters.rows, 4u) << "100; 98, 102 and from there 103";
  EXPECT_EQ(counters.reads, 1);
  EXPECT_EQ(counters.read_bytes, int64_t{6 * kPageBytes}) << "98 to 103";
  lease = *cache->Pin(std::vector<NodeId>{97, 98, 102, 103, 107}, {}, true, &soon);
  ASSERT_TRUE(lease.Await().ok());
  counters = cache->counters();
  EXPECT_EQ(counters.hits, 3);
  EXPECT_EQ(counters.misses, 3) << "100, 97 and 107";
  ExpectRows(*cache, std::vector<NodeId>{97, 98, 102, 103, 107});

  // 64 frames hold the rows of 12 batches of five rows, or of twice as many batches if they share rows. Rows that are
  // used later than that are not read along.
  lease = {};
  std::deque<RowCache::Announcement> between;
  now = cache->Announce(std::vector<NodeId>{200}, {});
  for (NodeId batch = 0; batch < 60; ++batch) between.push_back(cache->Announce(std::vector<NodeId>{300 + batch}, {}));
  const auto late = cache->Announce(std::vector<NodeId>{201}, {});
  lease = *cache->Pin(std::vector<NodeId>{200}, {}, true, &now);
  ASSERT_TRUE(lease.Await().ok());
  EXPECT_EQ(cache->counters().read_bytes - counters.read_bytes, int64_t{kPageBytes});
}

TEST_P(RowCacheTest, AnAnnouncementThatGoesIsForgotten) {
  const auto cache = Make(100);
  const auto misses = [&](std::span<const NodeId> rows) {
    const int64_t before = cache->counters().misses;
    EXPECT_TRUE(cache->Pin(rows, {}, true)->Await().ok());
    return cache->counters().misses - before;
  };
  EXPECT_EQ(misses(Rows(0, 100)), 100);
  {
    const auto kept = cache->Announce(Rows(0, 50), Rows(20, 60));
    EXPECT_EQ(misses(Rows(200, 240)), 40);
    EXPECT_EQ(misses(Rows(0, 60)), 0) << "rows 60..99 made room";
  }
  {
    // One row is outside the table. Pin will report it, and the announcement keeps no row.
    std::vector<NodeId> bad = Rows(200, 240);
    bad.push_back(kNodes);
    const auto none = cache->Announce(bad, {});
    const auto kept = cache->Announce(Rows(10, 20), {});
    EXPECT_EQ(misses(Rows(300, 330)), 30);
    EXPECT_EQ(misses(Rows(10, 20)), 0);
    // The rows pinned longest ago were dropped first, because none of them was announced any more.
    EXPECT_EQ(misses(Rows(200, 230)), 30);
  }
}

// The reads could bring along more rows than the share of frames set aside for them.
TEST_P(RowCacheTest, RowsThatComeAlongTakeAnEighthOfTheFramesAtMost) {
  const TempDir temp;
  const auto opened = OpenNumbered(temp.path(), kNodes, 100);
  const uint64_t budget = kNodes * RowCache::kBytesPerRow + 160 * FrameTable::FrameBytes(100 * sizeof(float));
  const auto cache = *RowCache::Create(*opened->stored_features(), budget);
  ASSERT_TRUE(cache->Start(opened, {.kind = GetParam(), .depth = 4}, 0).ok());
  std::vector<NodeId> first;
  for (NodeId page = 0; page < 10; ++page) first.push_back(10 * page);
  auto now = cache->Announce(first, {});
  const auto later = cache->Announce(Rows(0, 100), {});
  auto lease = *cache->Pin(first, {}, true, &now);
  ASSERT_TRUE(lease.Await().ok());
  EXPECT_EQ(cache->counters().rows, 10u + 160 / 8);
  EXPECT_EQ(cache->counters().misses, 10);
  // Rows that came along lose their pins when the reads end. A batch may then take every frame except those of the
  // lease.
  EXPECT_TRUE(cache->Pin(Rows(1000, 1150), {}, /*must=*/true).ok());
  EXPECT_EQ(cache->counters().over_budget, 0);
}

TEST_P(RowCacheTest, WhatIsCountedOvertakesWhatWasExpected) {
  const auto cache = Make(120);
  std::vector<float> draws(kNodes, 0.0f);
  for (NodeId row = 0; row < 100; ++row) draws[row] = 1;
  cache->SetExpectedDraws(draws);
  // No batch draws the expected rows. Every batch draws rows 1000..1049 and some others.
  NodeId other = 1100;
  for (int batch = 0; batch < 40; ++batch) {
    ASSERT_TRUE(cache->Pin(Rows(1000, 1050), Rows(other, other + 20), true)->Await().ok());
    other += 20;
  }
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache->Pin(Rows(200 + 30 * i, 230 + 30 * i), {}, true)->Await().ok());
  const int64_t misses = cache->counters().misses;
  ASSERT_TRUE(cache->Pin(Rows(1000, 1050), {}, true)->Await().ok());
  EXPECT_EQ(cache->counters().misses, misses);
}

TEST_P(RowCacheTest, RowsStayOverAStopAndAnotherStart) {
  const auto cache = Make(100);
  ASSERT_TRUE(cache->Pin(Rows(0, 50), {}, true)->Await().ok());
  cache->Stop();
  ASSERT_TRUE(cache->Start(*Graph::Open(temp_.path()), {.kind = GetParam(), .depth = 1}, 0).ok());
  EXPECT_EQ(cache->reader().depth, 4);
  auto lease = *cache->Pin(Rows(0, 51), {}, true);
  ASSERT_TRUE(lease.Await().ok());
  ExpectRows(*cache, Rows(0, 51));
  EXPECT_EQ(cache->counters().misses, 51);
}

TEST_P(RowCacheTest, MoreReadsAreOnTheirWayThanTheDiskWorksOnAtOnce) {
  const auto cache = Make(100);
  for (const auto& [of_disk, want] : {std::pair{1, 4}, {32, 128}, {64, 256}, {100, 256}, {300, 256}, {1024, 256}}) {
    ASSERT_TRUE(cache->Start(graph_, {.kind = GetParam(), .depth = of_disk}, 0).ok());
    EXPECT_EQ(cache->reader().depth, want) << of_disk;
    ASSERT_TRUE(cache->Pin(Rows(0, 50), {}, true)->Await().ok());
    ExpectRows(*cache, Rows(0, 50));
  }
}

// Rows take 4 MiB each. With as many reads in flight as for narrow rows, the buffers would take 1.3 GiB.
TEST_P(RowCacheTest, WideRowsAreReadFewAtOnce) {
  constexpr NodeId kRows = 6;
  const TempDir temp;
  const auto opened = OpenNumbered(temp.path(), kRows, 1 << 20);
  const auto cache = *RowCache::Create(*opened->stored_features(), uint64_t{64} << 20);
  ASSERT_TRUE(cache->Start(opened, {.kind = GetParam(), .depth = 64}, 0).ok());
  EXPECT_EQ(cache->reader().depth, 1);
  ASSERT_TRUE(cache->Pin(Rows(0, kRows), {}, true)->Await().ok());
  for (NodeId row = 0; row < kRows; ++row) {
    EXPECT_EQ(*reinterpret_cast<const float*>(cache->Find(row)), static_cast<float>(row));
  }
}

TEST_P(RowCacheTest, ABudgetMayChangeWhileRowsAreRead) {
  const auto cache = Make(400);
  std::atomic<bool> stop{false};
  std::thread resizer([&] {
    for (uint64_t frames = 1; !stop; frames = frames * 7 % 400 + 1) {
      cache->SetBudget(Budget(frames));
      std::this_thread::yield();
    }
  });
  SplitMix64 random(9, 0);
  for (int batch = 0; batch < 200; ++batch) {
    std::vector<NodeId> rows(80);
    for (NodeId& row : rows) row = static_cast<NodeId>(random.Below(500));
    auto lease = cache->Pin(rows, {}, true);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(lease->Await().ok());
    ExpectRows(*cache, rows);
  }
  stop = true;
  resizer.join();
}

TEST_P(RowCacheTest, ManyThreadsMayLeaseAtOnce) {
  const auto cache = Make(1500);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      SplitMix64 random(t, 0);
      for (int batch = 0; batch < 60; ++batch) {
        std::vector<NodeId> rows(50);
        for (NodeId& row : rows) row = static_cast<NodeId>(random.Below(kNodes));
        auto lease = cache->Pin(rows, {}, true);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_TRUE(lease->Await().ok());
        ExpectRows(*cache, rows);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two leases miss the same rows at the same moment. One of them reads all the rows, and the other has nothing to
// read.
TEST_P(RowCacheTest, LeasesOfTheSameRowsAtOnceBothEnd) {
  const auto cache = Make(400);
  for (NodeId first = 0; first + 100 <= kNodes; first += 100) {
    const auto rows = Rows(first, first + 100);
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        auto lease = cache->Pin(rows, {}, true);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_TRUE(lease->Await().ok());
        ExpectRows(*cache, rows);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(cache->counters().misses, static_cast<int64_t>(kNodes));
}

TEST_P(RowCacheTest, ARowThatIsNoneIsRefused) {
  const auto cache = Make(10);
  const std::vector<NodeId> rows{1, kNodes};
  EXPECT_EQ(cache->Pin(rows, {}, true).status(), absl::InvalidArgumentError("row 2000 is none of the table's 2000"));
  EXPECT_TRUE(cache->Pin(Rows(0, 9), {}, true).ok()) << "and leaves nothing pinned";
}

TEST_P(RowCacheTest, AReadThatFailsIsTheErrorOfItsBatchAndIsTriedAgain) {
  std::atomic<bool> fail{true};
  const auto cache = Make(
      100, {.depth = 4, .alter = [&](uint64_t, uint32_t, int64_t result) -> int64_t { return fail ? -EIO : result; }});
  {
    auto lease = *cache->Pin(Rows(0, 40), {}, true);
    const absl::Status failed = lease.Await();
    EXPECT_FALSE(failed.ok());
    EXPECT_TRUE(IsTransient(failed)) << failed;
    EXPECT_NE(failed.message().find("graph.pfg"), std::string::npos) << failed;
    EXPECT_FALSE(cache->Pin(Rows(10, 20), {}, true).ok()) << "rows that another holds, and that are not there";
  }
  EXPECT_GT(cache->counters().read_errors, 0);
  fail = false;
  auto lease = *cache->Pin(Rows(0, 40), {}, true);
  ASSERT_TRUE(lease.Await().ok());
  ExpectRows(*cache, Rows(0, 40));
}

TEST_P(RowCacheTest, APageThatIsNotWhatWasWrittenIsDataLossEachTimeThatItIsRead) {
  const auto cache = Make(100);
  ASSERT_TRUE(cache->Pin(Rows(0, 10), {}, true)->Await().ok());
  const StoredRows table = *graph_->stored_features();
  const auto written = std::filesystem::last_write_time(table.path);
  std::fstream file(table.path, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t at = table.offset + uint64_t{77} * 4096 + 1234;
  file.seekp(static_cast<std::streamoff>(at));
  file.put('\x55');
  file.close();
  // The file's time is set back, so the change looks like a disk error rather than a write.
  std::filesystem::last_write_time(table.path, written);
  for (int time = 0; time < 2; ++time) {
    auto lease = *cache->Pin(Rows(70, 80), {}, true);
    const absl::Status status = lease.Await();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("graph.pfg: section node_features: bytes 315392..319487: checksum: is "),
              std::string::npos)
        << status;
  }
  ASSERT_TRUE(cache->Pin(Rows(60, 77), {}, true)->Await().ok()) << "the others are whole";
}

TEST_P(RowCacheTest, AFileCutShortIsDataLoss) {
  const auto cache = Make(100);
  std::filesystem::resize_file(temp_.path() / Graph::kFileName,
                               graph_->stored_features()->offset + uint64_t{100} * 4096);
  // The checksums were at the end of the file, so nothing can be verified any more.
  for (const NodeId first : {0, 1000}) {
    const absl::Status status = cache->Pin(Rows(first, first + 10), {}, true)->Await();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("import it again"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace permafrost::data
