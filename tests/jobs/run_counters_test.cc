#include "jobs/run_counters.h"

#include <gtest/gtest.h>

namespace permafrost::jobs {
namespace {

train::Progress At(int64_t step, double forward_seconds) {
  train::Progress progress;
  progress.step = step;
  progress.graphs = 10 * step;
  progress.nodes = 200 * step;
  progress.edges = 400 * step;
  progress.padding_nodes = step;
  progress.padding_edges = 2 * step;
  progress.phase_seconds.forward = forward_seconds;
  return progress;
}

TEST(RunCountersTest, AFirstRunCountsFromNothing) {
  RunCounters counters(/*resumed=*/false);
  const auto first = counters.Advance(At(1, 0.5));
  EXPECT_EQ(first.counts.steps, 1);
  EXPECT_EQ(first.counts.graphs, 10);
  EXPECT_EQ(first.counts.padding_edges, 2);
  ASSERT_TRUE(first.step.has_value());
  EXPECT_EQ(first.step->forward, 0.5);
  const auto second = counters.Advance(At(2, 0.75));
  EXPECT_EQ(second.counts.steps, 1);
  EXPECT_EQ(second.counts.nodes, 200);
  EXPECT_EQ(second.counts.edges, 400);
  EXPECT_EQ(second.counts.padding_nodes, 1);
  EXPECT_EQ(second.step->forward, 0.25);
}

TEST(RunCountersTest, AResumedRunDoesNotCountTheWorkOfTheOneBefore) {
  RunCounters counters(/*resumed=*/true);
  const auto first = counters.Advance(At(101, 0.5));
  EXPECT_EQ(first.counts.steps, 1) << "the step that was just done";
  EXPECT_EQ(first.counts.graphs, 0) << "how many of the 1,010 graphs are new is not known";
  EXPECT_EQ(first.step->forward, 0.5);
  const auto second = counters.Advance(At(102, 1.0));
  EXPECT_EQ(second.counts.steps, 1);
  EXPECT_EQ(second.counts.graphs, 10);
  EXPECT_EQ(second.step->forward, 0.5);
}

TEST(RunCountersTest, AResumedRunThatTellsItsStartFirstLosesNothing) {
  RunCounters counters(/*resumed=*/true);
  const auto start = counters.Advance(At(100, 0));
  EXPECT_EQ(start.counts.steps, 0);
  EXPECT_FALSE(start.step.has_value());
  const auto first = counters.Advance(At(101, 0.5));
  EXPECT_EQ(first.counts.steps, 1);
  EXPECT_EQ(first.counts.graphs, 10);
}

TEST(RunCountersTest, LookAheadCountsEachRunFromNothing) {
  for (const bool resumed : {false, true}) {
    RunCounters counters(resumed);
    train::Progress progress = At(resumed ? 101 : 1, 0.5);
    EXPECT_EQ(counters.Advance(progress).look_ahead.sampled_edges, 0) << "a job that does not sample";
    progress = At(resumed ? 102 : 2, 0.75);
    progress.look_ahead = {8, 2, 1000, 3, {100, 30, 40, 4096, 1, 5}};
    progress.look_ahead->cut_batches = 6;
    const telemetry::LookAheadCounts first = counters.Advance(progress).look_ahead;
    EXPECT_EQ(first.sampled_edges, 1000) << resumed;
    EXPECT_EQ(first.stalls, 3);
    EXPECT_EQ(first.cut_batches, 6);
    EXPECT_EQ(first.wanted_pages, 100);
    EXPECT_EQ(first.advised_bytes, 4096);
    EXPECT_EQ(first.major_faults, 5);
    ++progress.step;
    progress.look_ahead->sampled_edges = 1500;
    progress.look_ahead->stalls = 2;
    progress.look_ahead->cut_batches = 8;
    const telemetry::LookAheadCounts second = counters.Advance(progress).look_ahead;
    EXPECT_EQ(second.sampled_edges, 500);
    EXPECT_EQ(second.cut_batches, 2);
    EXPECT_EQ(second.stalls, 0) << "never negative";
  }
}

TEST(RunCountersTest, AResumedRunsFirstProgressHoldsItsOwnSamples) {
  RunCounters counters(/*resumed=*/true);
  train::Progress progress = At(101, 0.5);
  progress.look_ahead = {8, 2, 1000, 3, {}};
  EXPECT_EQ(counters.Advance(progress).look_ahead.sampled_edges, 1000);
}

TEST(RunCountersTest, FeaturesThatWereReadAreCounted) {
  RunCounters counters(/*resumed=*/false);
  train::Progress progress = At(1, 0.5);
  progress.look_ahead = {8, 2, 1000, 3, {}};
  EXPECT_EQ(counters.Advance(progress).features.hits, 0) << "they are mapped";
  EXPECT_FALSE(RunCounters::FeaturesOf(progress.look_ahead));
  ++progress.step;
  data::RowReading& rows = progress.look_ahead->rows.emplace();
  rows.reader.depth = 32;
  rows.counters = {.hits = 10,
                   .misses = 20,
                   .evictions = 3,
                   .reads = 4,
                   .read_bytes = 5,
                   .read_errors = 6,
                   .read_seconds_sum = 0.25,
                   .stall_seconds = 0.5,
                   .over_budget = 7,
                   .resizes = 8,
                   .budget_bytes = 9,
                   .used_bytes = 11,
                   .rows = 12};
  rows.counters.read_seconds = {1, 0, 3};
  const telemetry::FeatureCounts first = counters.Advance(progress).features;
  EXPECT_EQ(first.hits, 10);
  EXPECT_EQ(first.misses, 20);
  EXPECT_EQ(first.evictions, 3);
  EXPECT_EQ(first.read_bytes, 5);
  EXPECT_EQ(first.read_errors, 6);
  EXPECT_EQ(first.stall_seconds, 0.5);
  EXPECT_EQ(first.over_budget, 7);
  EXPECT_EQ(first.resizes, 8);
  EXPECT_EQ(first.reads[0], 1);
  EXPECT_EQ(first.reads[2], 3);
  EXPECT_EQ(first.read_seconds, 0.25);
  const telemetry::FeatureState state = RunCounters::FeaturesOf(progress.look_ahead).value();
  EXPECT_EQ(state.budget_bytes, 9u);
  EXPECT_EQ(state.used_bytes, 11u);
  EXPECT_EQ(state.rows, 12u);
  EXPECT_EQ(state.depth, 32);
  ++progress.step;
  rows.counters.hits = 15;
  rows.counters.misses = 19;
  rows.counters.read_seconds[2] = 5;
  const telemetry::FeatureCounts second = counters.Advance(progress).features;
  EXPECT_EQ(second.hits, 5);
  EXPECT_EQ(second.misses, 0) << "never negative";
  EXPECT_EQ(second.reads[2], 2);
}

TEST(RunCountersTest, ResidencyIsOfThePagesLookedAt) {
  train::LookAhead ahead{8, 2, 1000, 3, {}};
  EXPECT_FALSE(RunCounters::StateOf(std::nullopt).has_value());
  EXPECT_EQ(RunCounters::StateOf(ahead)->resident_ratio, 0) << "none looked at yet";
  ahead.pages.resident_pages = 30;
  ahead.pages.sampled_pages = 40;
  EXPECT_EQ(RunCounters::StateOf(ahead)->resident_ratio, 0.75);
  EXPECT_EQ(RunCounters::StateOf(ahead)->depth, 8);
  EXPECT_EQ(RunCounters::StateOf(ahead)->ready_batches, 2);
}

TEST(RunCountersTest, ARunThatBeganAnewCountsFromNothing) {
  RunCounters counters(/*resumed=*/true);
  EXPECT_EQ(counters.Advance(At(1, 0.5)).counts.graphs, 10);
}

TEST(RunCountersTest, BatchesThatAreSkippedAgainAfterARewindAreCountedOnce) {
  RunCounters counters(/*resumed=*/false);
  int64_t counted = 0;
  for (const int64_t skipped : {0, 1, 2, 0, 1, 2, 3, 0, 4}) {
    counted += counters.Advance({.step = 1, .skipped_batches = skipped}).counts.skipped_batches;
  }
  EXPECT_EQ(counted, 4);
}

TEST(RunCountersTest, ExchangesOfAnotherTeamCountFromNothing) {
  const auto told = [](int64_t step, int64_t exchanges, double seconds, int64_t sent_bytes) {
    return train::Progress{
        .step = step,
        .exchange = train::Exchange{.exchanges = exchanges, .seconds = seconds, .sent_bytes = sent_bytes}};
  };
  RunCounters counters(/*resumed=*/false);
  counters.Advance(told(1, 10, 1, 1000));
  EXPECT_EQ(counters.Advance(told(2, 20, 3, 1500)).counts.exchanged_bytes, 500);
  // A team's first report includes the weights that were shared at its start.
  const auto other = counters.Advance(told(3, 5, 4, 9000)).counts;
  EXPECT_EQ(other.exchanged_bytes, 9000);
  EXPECT_EQ(other.exchange_seconds, 4);
}

TEST(RunCountersTest, RanksOfAnotherTeamCountFromNothing) {
  const auto told = [](int64_t step, std::vector<train::RankProgress> ranks) {
    return train::Progress{.step = step, .exchange = train::Exchange{.ranks = std::move(ranks)}};
  };
  RunCounters counters(/*resumed=*/false);
  EXPECT_EQ(counters.Advance(told(1, {{.steps = 1, .seconds = 2}, {}})).counts.ranks[0].steps, 1);
  const auto more = counters.Advance(told(5, {{.steps = 5, .seconds = 3}, {.steps = 4, .seconds = 2}})).counts.ranks;
  EXPECT_EQ(more[0].steps, 4);
  EXPECT_EQ(more[0].seconds, 1);
  EXPECT_EQ(more[1].steps, 4);
  const auto other = counters.Advance(told(6, {{.steps = 1, .seconds = 0.5}, {}, {}})).counts.ranks;
  ASSERT_EQ(other.size(), 3u);
  EXPECT_EQ(other[0].steps, 1);
  EXPECT_EQ(other[0].seconds, 0.5);
  EXPECT_EQ(other[1].steps, 0);
}

TEST(RunCountersTest, NothingIsNegative) {
  RunCounters counters(/*resumed=*/false);
  counters.Advance(At(5, 1));
  const auto back = counters.Advance(At(3, 0.5));
  EXPECT_EQ(back.counts.steps, 0);
  EXPECT_EQ(back.counts.graphs, 0);
  EXPECT_FALSE(back.step.has_value());
}

}  // namespace
}  // namespace permafrost::jobs
