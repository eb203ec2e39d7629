// Properties that hold for any sequence of steps and commands.
#include <random>

#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

class GraphCachePropertyTest : public CacheFixture {
 protected:
  static constexpr Mode kModes[] = {Mode::kTrain, Mode::kEval};

  // Returns the sizes of a random batch. They take so few values that some shapes recur, and some exceed the ceiling.
  BatchShape RandomReal(std::mt19937& random) {
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    return {8 * pick(1, 12), 20 * pick(1, 9), pick(3, 4)};
  }
  void RunOne(Mode mode, const BatchShape& real, int64_t step) {
    FakeBatch batch(compiler_, real);
    ASSERT_EQ(cache_->Run(mode, batch, step).status(), absl::OkStatus());
    ++steps_[static_cast<size_t>(mode)];
    real_nodes_[static_cast<size_t>(mode)] += real.nodes;
    compiler_.events.clear();
  }
  void ExpectTheCountsAddUp() {
    const Snapshot snapshot = cache_->snapshot();
    std::array<int64_t, 2> held{};
    for (const EntryInfo& info : cache_->entries()) ++held[static_cast<size_t>(info.mode)];
    for (const Mode mode : kModes) {
      const ModeStats& s = snapshot.of(mode);
      const size_t m = static_cast<size_t>(mode);
      ASSERT_EQ(s.hits + s.padded_hits + s.misses, steps_[m]);
      ASSERT_LE(s.eager_steps + s.transient_steps, s.misses);
      ASSERT_LE(s.misses - s.eager_steps, s.captures);
      ASSERT_EQ(s.captures_by_cause.Sum(), s.captures);
      ASSERT_EQ(s.misses_by_cause.Sum(), s.misses);
      ASSERT_EQ(s.captures_by_cause.of(Cause::kResume), s.recaptures);
      ASSERT_LE(s.audits, steps_[m]);
      ASSERT_EQ(s.nodes, real_nodes_[m]);
      ASSERT_GE(s.padding_nodes, steps_[m]) << "each step has a padding node";
      ASSERT_GE(s.padding_graphs, steps_[m]) << "and a padding graph";
      ASSERT_EQ(s.entries, held[m]);
      ASSERT_TRUE(s.capacity == -1 || s.capacity >= s.entries);
    }
  }

  // Checks a cache that is restored from a checkpoint of this one.
  void ExpectAResumePlansTheSame() {
    const Snapshot snapshot = cache_->snapshot();
    std::unique_ptr<GraphCache> undisturbed = std::move(cache_);
    Make({.max_executables = 9});
    cache_->Restore(snapshot, undisturbed->entries());
    for (const Mode mode : kModes) {
      ASSERT_EQ(cache_->ladder(mode), undisturbed->ladder(mode)) << kModeNames.Name(mode);
      ASSERT_EQ(cache_->of(mode).dynamic, undisturbed->of(mode).dynamic) << kModeNames.Name(mode);
      ASSERT_EQ(cache_->snapshot().of(mode).capacity, snapshot.of(mode).capacity) << kModeNames.Name(mode);
    }
    ASSERT_EQ(cache_->snapshot().frozen, snapshot.frozen);
    ASSERT_EQ(cache_->snapshot().freeze_point, snapshot.freeze_point);
    cache_ = std::move(undisturbed);
    compiler_.events.clear();
  }

  std::array<int64_t, 2> steps_{}, real_nodes_{};
};

TEST_F(GraphCachePropertyTest, AFrozenCacheNeitherGrowsNorCaptures) {
  for (const spec::OnMiss on_miss : {spec::OnMiss::kPad, spec::OnMiss::kEager, spec::OnMiss::kTransient}) {
    std::mt19937 random(static_cast<uint32_t>(on_miss));
    steps_ = real_nodes_ = {};
    Make({.freeze_at = 10, .on_miss = on_miss});
    int64_t step = 0;
    while (!cache_->snapshot().frozen) {
      RunOne(Mode::kTrain, RandomReal(random), step++);
      ASSERT_LT(step, 1000);
    }
    const Snapshot sealed = cache_->snapshot();
    EXPECT_EQ(sealed.of(Mode::kTrain).entries, on_miss == spec::OnMiss::kPad ? 11 : 10);
    for (int i = 0; i < 2000; ++i) {
      const Mode mode = kModes[i % 3 == 0];
      RunOne(mode, RandomReal(random), step);
      step += mode == Mode::kTrain;
      ExpectTheCountsAddUp();
      const Snapshot now = cache_->snapshot();
      for (const Mode m : kModes) {
        ASSERT_EQ(now.of(m).entries, sealed.of(m).entries);
        ASSERT_EQ(now.of(m).captures - now.of(m).frozen_captures, sealed.of(m).captures);
        if (on_miss != spec::OnMiss::kTransient) {
          ASSERT_EQ(now.of(m).frozen_captures, 0);
        }
      }
    }
    const ModeStats train = cache_->snapshot().of(Mode::kTrain);
    EXPECT_GT(train.hits + train.padded_hits, 0);
    EXPECT_GT(train.rejected_inserts, 0);
  }
}

TEST_F(GraphCachePropertyTest, CountsAddUpUnderAnyCommands) {
  std::mt19937 random(11);
  const auto pick = [&](int high) { return std::uniform_int_distribution<int>(0, high)(random); };
  for (const int64_t nodes : {10, 30, 60, 90}) plan_.train_schedule.push_back({Padded(nodes), 10});
  plan_.eval_schedule = {{Padded(20), 4}, {Padded(40), 4}};
  compiler_.no_dynamic_reason.clear();
  Make({.freeze_at = 6, .audit_every = 10, .max_executables = 9});
  for (int64_t step = 0; step < 12000; ++step) {
    if (pick(20) == 0) {
      PolicyUpdate update;
      if (pick(1) == 0) update.policy = spec::kPolicyNames.rows[static_cast<size_t>(pick(3))].first;
      if (pick(2) == 0) update.shapes = spec::kShapesNames.rows[static_cast<size_t>(pick(3))].first;
      if (pick(2) == 0) update.rungs = pick(5);
      if (pick(2) == 0) update.max_executables = pick(12);
      if (pick(1) == 0) update.on_miss = spec::kOnMissNames.rows[static_cast<size_t>(pick(2))].first;
      if (pick(2) == 0) update = {.max_executables = pick(12)};
      Apply(kCommandNames.rows[static_cast<size_t>(pick(3))].first, step, update);
    }
    if (pick(200) == 0) compiler_.breaks[kModes[pick(1)]] = "aten::item";
    if (pick(100) == 0) compiler_.breaks.clear();
    if (pick(300) == 0) compiler_.faults[kModes[pick(1)]] = {"aten::mm", "its result 0 has other bits"};
    if (pick(100) == 0) compiler_.faults.clear();
    if (pick(5) == 0) ExpectAResumePlansTheSame();
    const bool was_sealed = cache_->snapshot().frozen && cache_->ready();
    const size_t before = cache_->entries().size();
    RunOne(kModes[pick(3) == 0], RandomReal(random), step);
    ExpectTheCountsAddUp();
    if (was_sealed) {
      ASSERT_EQ(cache_->entries().size(), before);
    }
  }
}

}  // namespace
}  // namespace permafrost::graphcache
