#include "graphcache/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace permafrost::graphcache {
namespace {

ModeStats FilledStats(int64_t base) {
  ModeStats s;
  int64_t next = base;
  for (int64_t* field : {&s.entries,         &s.entry_bytes,
                         &s.capacity,        &s.hits,
                         &s.padded_hits,     &s.misses,
                         &s.captures,        &s.recaptures,
                         &s.frozen_captures, &s.rejected_inserts,
                         &s.graph_breaks,    &s.eager_steps,
                         &s.transient_steps, &s.awaiting_recapture,
                         &s.oversize_steps,  &s.cut_executables,
                         &s.rungs,           &s.audits,
                         &s.audit_failures,  &s.graphs,
                         &s.nodes,           &s.edges,
                         &s.padding_graphs,  &s.padding_nodes,
                         &s.padding_edges}) {
    *field = next++;
  }
  for (const auto& [cause, name] : kCauseNames.rows) {
    s.captures_by_cause.of(cause) = next++;
    s.misses_by_cause.of(cause) = next++;
  }
  s.dynamic = true;
  s.capture_seconds = 0.1 + static_cast<double>(base);
  return s;
}

// Returns a snapshot in which no field has its default.
Snapshot Filled() {
  Snapshot s;
  s.options = {.policy = spec::Policy::kClearPerStep,
               .freeze_at = 12,
               .on_miss = spec::OnMiss::kTransient,
               .shapes = spec::Shapes::kDynamic,
               .rungs = 13,
               .audit_every = 7,
               .strict = true,
               .max_executables = 9};
  s.freeze_point = {.freeze_at = 97,
                    .source = FreezeSource::kFormula,
                    .effective_size = 9500.552566072289,
                    .no_formula_reason = "none \"quoted\""};
  s.frozen = true;
  s.armed = false;
  s.freeze_step = 101;
  s.freeze_time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  s.modes = {FilledStats(100), FilledStats(200)};
  s.shared_bytes = 1;
  s.train_ceiling = {2, 3, 4};
  s.eval_ceiling = {5, 6, 7};
  s.planned_train_shapes = 8;
  s.planned_rungs = 88;
  s.of_seeds = true;
  s.graph_breaks = {{Mode::kEval, "aten::_local_scalar_dense", "reads a value back", 9}, {Mode::kTrain, "", "why", 1}};
  s.audit_failures = {{Mode::kEval, {1, 2, 3}, 4, "aten::mm", "its result 0 has other bits", 5}};
  s.eval_audit_step = 12;
  s.profiles.Set({Mode::kTrain,
                  {4, 5, 6},
                  7,
                  0.25,
                  0.5,
                  0.75,
                  {{"aten::mm", 8, 0.125}, {"", 9, 0.0625}},
                  {{"net.py:1", 0.5, 0.25}}});
  s.command_sequence = 10;
  s.command_step = 11;
  return s;
}

TEST(SnapshotTest, EveryFieldSurvivesJson) {
  const auto read = SnapshotFromJson(ToJson(Filled()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Filled());
  EXPECT_EQ(SnapshotFromJson(ToJson(Snapshot())).value(), Snapshot());
}

TEST(SnapshotTest, EntriesSurviveJson) {
  const std::vector<EntryInfo> entries = {{.mode = Mode::kEval,
                                           .shape = {2, 3, 4},
                                           .bytes = 5,
                                           .hits = 6,
                                           .padded_hits = 7,
                                           .replays = 13,
                                           .replay_seconds = 0.25,
                                           .capture_seconds = 0.125,
                                           .created_step = 8,
                                           .last_use = absl::FromUnixNanos(1'700'000'000'123'456'789),
                                           .dynamic = true},
                                          {.mode = Mode::kTrain,
                                           .shape = {9, 9, 9},
                                           .capture_seconds = std::numeric_limits<double>::infinity(),
                                           .withdrawn = true}};
  const auto read = EntriesFromJson(ToJson(entries));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, entries);
  EXPECT_EQ(EntriesFromJson(ToJson(std::vector<EntryInfo>())).value(), std::vector<EntryInfo>());
}

TEST(SnapshotTest, MissingFieldsKeepTheirDefaultsAndUnknownOnesAreSkipped) {
  const auto read = SnapshotFromJson(R"({"frozen": true, "train": {"hits": 3}, "of_a_later_version": [1]})");
  ASSERT_TRUE(read.ok()) << read.status();
  Snapshot want;
  want.frozen = true;
  want.of(Mode::kTrain).hits = 3;
  EXPECT_EQ(*read, want);
}

TEST(SnapshotTest, TextThatIsNoUtf8IsStillWritten) {
  Snapshot snapshot;
  snapshot.graph_breaks = {{Mode::kTrain, "", "bad \xff byte", 1}};
  EXPECT_TRUE(SnapshotFromJson(ToJson(snapshot)).ok());
}

TEST(SnapshotTest, WhatDoesNotAddUpIsDataLossThatNamesIt) {
  const struct {
    const char* text;
    const char* named;
  } kSnapshots[] = {{"{", "graph cache"},
                    {"[]", "an object was expected"},
                    {R"({"options": {"policy": "sometimes"}})", "sometimes"},
                    {R"({"freeze_time": "noon"})", "noon"},
                    {R"({"graph_breaks": {}})", "a list was expected"}};
  for (const auto& c : kSnapshots) {
    const absl::Status status = SnapshotFromJson(c.text).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << c.text << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(c.named)) << c.text;
  }
  EXPECT_TRUE(absl::IsDataLoss(EntriesFromJson("{}").status()));
  EXPECT_TRUE(absl::IsDataLoss(EntriesFromJson(R"([{"mode": "both"}])").status()));
}

}  // namespace
}  // namespace permafrost::graphcache
