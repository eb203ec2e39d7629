#include "data/batching/block_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace permafrost::data {
namespace {

// A graph that has only a view.
class EmptyGraph final : public Graph {
 public:
  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  const NodeNames& names() const override { return names_; }
  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t, uint64_t)>&) const override { return absl::OkStatus(); }
  uint64_t mapped_bytes() const override { return 0; }

 private:
  GraphSummary summary_;
  GraphView view_;
  NodeNames names_;
};

// Stores the stream number in each sample, and fails at the streams that a test names.
class FakeBatcher final : public BlockBatcher {
 public:
  const Graph& graph() const override { return graph_; }
  absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph) const override {
    return data::SizesOf(subgraph, graph_.view());
  }
  bool has_nonzeros() const override { return false; }
  absl::Status Sample(std::span<const NodeId> seeds, uint64_t stream, PageAdvisor* advisor, SampledSubgraph& out,
                      std::span<const int64_t> /*times*/) override {
    ++sampled;
    if (advisor != nullptr) {
      ++asked;
      // Requests bytes that are in memory, as far as the kernel can tell.
      advisor->Request(std::as_bytes(std::span(&seeds.front(), 1)));
      advisor->Flush();
    }
    if (stream == fail_sampling_of) return absl::DataLossError("damaged");
    if (stream == throw_at) throw std::runtime_error("broken");
    out.nodes.assign(seeds.begin(), seeds.end());
    out.row_ends = {std::ssize(seeds), std::ssize(seeds)};
    out.offsets.assign(seeds.size() + 1, 0);
    out.sources.clear();
    out.edge_places.assign(1, stream);
    return absl::OkStatus();
  }
  RowCache::Announcement Announce(const SampledSubgraph&) const override { return {}; }
  absl::StatusOr<RowCache::Lease> Lease(const SampledSubgraph& subgraph, bool must,
                                        RowCache::Announcement* /*announced*/) const override {
    if (must) {
      if (subgraph.edge_places.at(0) == fail_leasing_of) return absl::DataLossError("a damaged row");
      return RowCache::Lease();
    }
    ++leased_ahead;
    if (ahead.ok()) return RowCache::Lease();
    return ahead;
  }
  absl::Status Gather(const SampledSubgraph& subgraph, const BlockSizes& padded, BlockBatch& out,
                      RowCache::Lease* /*lease*/) override {
    const uint64_t stream = subgraph.edge_places.at(0);
    if (stream == fail_gathering_of) return absl::DataLossError("cut short");
    out.nodes = subgraph.nodes;
    out.padded = padded;
    out.real_seeds = static_cast<int64_t>(stream);
    gathered = static_cast<int64_t>(stream) + 1;
    return absl::OkStatus();
  }
  absl::Status Pad(const BlockSizes&, BlockBatch&) const override { return absl::OkStatus(); }

  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t fail_sampling_of = kNever, fail_gathering_of = kNever, fail_leasing_of = kNever, throw_at = kNever;
  absl::Status ahead;  // the status of a lease for any batch but the next one
  mutable std::atomic<int64_t> leased_ahead{0};
  std::atomic<int64_t> sampled{0}, gathered{0}, asked{0};

 private:
  EmptyGraph graph_;
};

class BlockStreamTest : public testing::Test {
 protected:
  std::unique_ptr<BlockStream> Stream(int64_t count, const BlockStream::Options& options = {}) {
    return std::make_unique<BlockStream>(
        batcher_, count,
        [this](int64_t index) {
          return BlockStream::Request{.seeds = std::span(seeds_).first(static_cast<size_t>(1 + index % 3)),
                                      .sample = static_cast<uint64_t>(index)};
        },
        [](const BlockSizes& real) {
          BlockSizes padded = real;
          padded.edges += 7;
          return padded;
        },
        options);
  }
  // Waits until the stream's thread has raised `counter` to `value`.
  static void Await(const std::atomic<int64_t>& counter, int64_t value) {
    while (counter < value) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::vector<NodeId> seeds_{5, 6, 7};
  FakeBatcher batcher_;
};

TEST_F(BlockStreamTest, AllInOrderThenNull) {
  for (const int64_t depth : {1, 2, 64}) {
    const auto stream = Stream(50, {.max_depth = depth});
    for (int64_t i = 0; i < 50; ++i) {
      const auto batch = stream->Next();
      ASSERT_TRUE(batch.ok() && *batch != nullptr) << i;
      EXPECT_EQ((*batch)->real_seeds, i);
      EXPECT_EQ(std::ssize((*batch)->nodes), 1 + i % 3);
      EXPECT_EQ((*batch)->padded.edges, 7) << "gathered at the sizes that Fit gave";
    }
    EXPECT_EQ(*stream->Next(), nullptr);
    EXPECT_EQ(*stream->Next(), nullptr);
  }
}

TEST_F(BlockStreamTest, NoBatches) { EXPECT_EQ(*Stream(0)->Next(), nullptr); }

TEST_F(BlockStreamTest, SamplesAheadOfTheGatheringByItsDepthAndNoFurther) {
  const auto stream = Stream(100, {.max_depth = 2});
  // Three slots hold gathered batches. Behind them, as many batches are sampled as the depth allows.
  Await(batcher_.gathered, 3);
  Await(batcher_.sampled, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(batcher_.gathered, 3);
  EXPECT_LE(batcher_.sampled, 5);
  EXPECT_EQ(stream->state().ready, 3);
}

TEST_F(BlockStreamTest, SampledSubgraphsTakeNoMoreThanTheirBytes) {
  const auto stream = Stream(100, {.max_depth = 64, .leases = true, .sampled_bytes = 1});
  // Rows are leased, so there are two slots. One more sampled subgraph already exceeds `sampled_bytes`.
  Await(batcher_.gathered, 2);
  Await(batcher_.sampled, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(batcher_.sampled, 3);
  EXPECT_EQ(batcher_.leased_ahead, 0);
}

TEST_F(BlockStreamTest, BatchesAheadThatFindNoRoomOrFailAreLeasedWhenTheyComeFirst) {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("others hold what there is room for"), absl::DataLossError("of a batch ahead")}) {
    batcher_.ahead = status;
    batcher_.leased_ahead = 0;
    const auto stream = Stream(20, {.max_depth = 8, .leases = true});
    // By then both slots are full and batches wait behind them.
    Await(batcher_.leased_ahead, 1);
    for (int64_t i = 0; i < 20; ++i) {
      const auto batch = stream->Next();
      ASSERT_TRUE(batch.ok() && *batch != nullptr) << i << ": " << batch.status();
      EXPECT_EQ((*batch)->real_seeds, i);
    }
    EXPECT_EQ(*stream->Next(), nullptr);
  }
  batcher_.fail_leasing_of = 4;
  const auto stream = Stream(20, {.max_depth = 8, .leases = true});
  for (int64_t i = 0; i < 4; ++i) ASSERT_TRUE(stream->Next().ok()) << i;
  EXPECT_EQ(stream->Next().status(), absl::DataLossError("a damaged row"));
}

TEST_F(BlockStreamTest, OnceAllIsInMemoryFewBatchesAskForTheirPages) {
  const auto stream = Stream(200);
  while (*stream->Next() != nullptr) {
  }
  // Every batch asks until the mean resident share reaches 0.98, which takes 14 flushes. After that one batch in
  // eight asks.
  EXPECT_EQ(batcher_.asked, 14 + (200 - 14) / 8);
}

TEST_F(BlockStreamTest, AnErrorComesInItsPlaceAndStays) {
  const auto failing = [&](uint64_t FakeBatcher::*where, absl::StatusCode code, const char* says) {
    batcher_.*where = 4;
    const auto stream = Stream(10);
    absl::Status error;
    int64_t good = 0;
    while (error.ok()) {
      const auto batch = stream->Next();
      error = batch.status();
      if (error.ok()) ++good;
    }
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(std::string(error.message()), testing::HasSubstr(says));
    EXPECT_EQ(stream->Next().status(), error);
    EXPECT_EQ(good, 4) << "however far the sampling was ahead";
    batcher_.*where = FakeBatcher::kNever;
  };
  failing(&FakeBatcher::fail_sampling_of, absl::StatusCode::kDataLoss, "damaged");
  failing(&FakeBatcher::fail_gathering_of, absl::StatusCode::kDataLoss, "cut short");
  failing(&FakeBatcher::throw_at, absl::StatusCode::kInternal, "broken");
}

TEST_F(BlockStreamTest, DestructionStopsIt) {
  { const auto stream = Stream(1'000'000); }
  EXPECT_LT(batcher_.sampled, 1'000'000);
}

TEST(NextDepth, AdaptsToWhatIsMissing) {
  const BlockStream::Options options{.max_depth = 8, .budget_bytes = 100};
  const struct {
    const char* why;
    int64_t depth;
    bool stalled;
    double resident;
    uint64_t bytes;
    int64_t want;
  } kCases[] = {
      {"all in memory: one less", 4, false, 1.0, 0, 3},
      {"never below one", 1, false, 1.0, 0, 1},
      {"a step waited for missing pages: twice as far", 2, true, 0.5, 10, 4},
      {"never above the most", 8, true, 0.0, 1, 8},
      {"pages are missing but nobody waits", 4, false, 0.5, 10, 4},
      {"a step waited, for another reason than pages", 4, true, 0.95, 10, 4},
      {"open advice stays within its budget", 4, true, 0.0, 40, 2},
      {"one batch is above the budget", 4, true, 0.0, 400, 1},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(NextDepth(c.depth, c.stalled, c.resident, c.bytes, options), c.want) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::data
