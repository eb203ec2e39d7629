#include "jobs/run_counters.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace permafrost::jobs {
namespace {
using graphcache::Snapshot;

constexpr size_t kTrain = 0, kEval = 1;

Snapshot Hits(int64_t train, int64_t eval, int64_t misses = 0) {
  Snapshot snapshot;
  snapshot.of(Mode::kTrain).hits = train;
  snapshot.of(Mode::kTrain).misses = misses;
  snapshot.of(Mode::kEval).hits = eval;
  return snapshot;
}

// Returns the increment of the counter `permafrost_graph_cache_NAME_total`. `value` is the value of its label, if it
// has one.
double Of(const telemetry::GraphCacheCounts& counts, const std::string& name, const std::string& value = "") {
  const std::vector<telemetry::CounterRow> rows = CacheCounterRows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name == "permafrost_graph_cache_" + name + "_total" && rows[i].value == value) {
      return counts.counters.at(i);
    }
  }
  ADD_FAILURE() << name << " " << value << ": no such counter";
  return -1;
}

TEST(CacheCountersTest, ANewJobsFirstSnapshotCounts) {
  CacheCounters counters(false);
  EXPECT_EQ(Of(counters.Advance(Hits(1, 0))[kTrain], "hits"), 1);
  const auto next = counters.Advance(Hits(3, 4));
  EXPECT_EQ(Of(next[kTrain], "hits"), 2);
  EXPECT_EQ(Of(next[kEval], "hits"), 4);
}

TEST(CacheCountersTest, AResumedJobsFirstSnapshotIsWhereItBegins) {
  CacheCounters counters(true);
  EXPECT_EQ(Of(counters.Advance(Hits(100, 50))[kTrain], "hits"), 0);
  const auto next = counters.Advance(Hits(101, 50));
  EXPECT_EQ(Of(next[kTrain], "hits"), 1);
  EXPECT_EQ(Of(next[kEval], "hits"), 0);
}

TEST(CacheCountersTest, AResumedJobWithoutACheckpointCountsFromNothing) {
  CacheCounters counters(true);
  EXPECT_EQ(Of(counters.Advance(Hits(0, 0, 1))[kTrain], "misses"), 1);
}

TEST(CacheCountersTest, EveryCounterAdvances) {
  graphcache::ModeStats s;
  s.hits = 1;
  s.padded_hits = 2;
  s.misses = 3;
  s.captures = 4;
  s.rejected_inserts = 5;
  s.graph_breaks = 6;
  s.eager_steps = 7;
  s.transient_steps = 8;
  s.oversize_steps = 18;
  s.audits = 19;
  s.audit_failures = 2;
  s.captures_by_cause.of(graphcache::Cause::kResume) = 20;
  s.misses_by_cause.of(graphcache::Cause::kAudit) = 21;
  s.capture_seconds = 0.5;
  s.nodes = 9;
  s.edges = 10;
  s.padding_nodes = 11;
  s.padding_edges = 12;
  Snapshot snapshot;
  snapshot.of(Mode::kEval) = s;
  const telemetry::GraphCacheCounts counts = CacheCounters(false).Advance(snapshot)[kEval];
  EXPECT_EQ(Of(counts, "hits"), 1);
  EXPECT_EQ(Of(counts, "padded_hits"), 2);
  EXPECT_EQ(Of(counts, "misses"), 3);
  EXPECT_EQ(Of(counts, "captures"), 4);
  EXPECT_EQ(Of(counts, "rejected_inserts"), 5);
  EXPECT_EQ(Of(counts, "graph_breaks"), 6);
  EXPECT_EQ(Of(counts, "eager_steps"), 7);
  EXPECT_EQ(Of(counts, "transient_steps"), 8);
  EXPECT_EQ(Of(counts, "oversize_steps"), 18);
  EXPECT_EQ(Of(counts, "audits", "equal"), 17);
  EXPECT_EQ(Of(counts, "audits", "different"), 2);
  EXPECT_EQ(counts.captures_by_cause[static_cast<size_t>(graphcache::Cause::kResume)], 20);
  EXPECT_EQ(counts.misses_by_cause[static_cast<size_t>(graphcache::Cause::kAudit)], 21);
  EXPECT_EQ(Of(counts, "capture_seconds"), 0.5);
  EXPECT_EQ(Of(counts, "rows", "nodes"), 9);
  EXPECT_EQ(Of(counts, "rows", "edges"), 10);
  EXPECT_EQ(Of(counts, "padding_rows", "nodes"), 11);
  EXPECT_EQ(Of(counts, "padding_rows", "edges"), 12);
}

TEST(CacheCountersTest, NoIncrementIsNegative) {
  CacheCounters counters(false);
  counters.Advance(Hits(5, 0));
  EXPECT_EQ(Of(counters.Advance(Hits(3, 0))[kTrain], "hits"), 0);
}

}  // namespace
}  // namespace permafrost::jobs
