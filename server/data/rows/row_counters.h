// Counts what a feature cache did, for metrics and for people. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "spec/field.h"

namespace permafrost::data {

struct RowCounters {
  // Rows that batches asked for, each once a batch: found in memory or on their way there, and read from the disk.
  int64_t hits = 0, misses = 0;
  int64_t evictions = 0;
  int64_t reads = 0, read_bytes = 0;  // that were done
  int64_t read_errors = 0;
  // Single reads, timed from their start on: the numbers of those that took at most kReadSeconds[i], the last any.
  static constexpr std::array<double, 11> kReadSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                       0.01,   0.025,   0.05,   0.1,   1};
  std::array<int64_t, kReadSeconds.size() + 1> read_seconds{};
  double read_seconds_sum = 0;
  double stall_seconds = 0;  // that gathering waited for reads
  int64_t over_budget = 0;   // batches that took memory beyond the budget
  int64_t resizes = 0;       // changes of the budget while it was in use

  // As they are now.
  uint64_t budget_bytes = 0, used_bytes = 0, rows = 0;
};

template <class F>
void VisitFields(spec::Options<RowCounters>, F&& f) {
  using R = RowCounters;
  f({.name = "hits"}, &R::hits);
  f({.name = "misses"}, &R::misses);
  f({.name = "evictions"}, &R::evictions);
  f({.name = "reads"}, &R::reads);
  f({.name = "read_bytes"}, &R::read_bytes);
  f({.name = "read_errors"}, &R::read_errors);
  f({.name = "read_seconds", .stored = "read_seconds_sum"}, &R::read_seconds_sum);
  f({.name = "stall_seconds"}, &R::stall_seconds);
  f({.name = "over_budget"}, &R::over_budget);
  f({.name = "resizes"}, &R::resizes);
  f({.name = "budget_bytes"}, &R::budget_bytes);
  f({.name = "used_bytes"}, &R::used_bytes);
  f({.name = "rows"}, &R::rows);
}

// Returns what was counted after `before`; fields that describe a state are taken from `now`.
RowCounters Since(const RowCounters& before, RowCounters now);

struct RowReaderState {
  std::string kind;      // "io_uring", "pread"; empty: the table is mapped
  std::string fallback;  // why it is not the first choice; empty: it is
  bool direct = false;
  int64_t depth = 0;  // reads at once
};

template <class F>
void VisitFields(spec::Options<RowReaderState>, F&& f) {
  using R = RowReaderState;
  f({.name = "reader", .stored = "kind"}, &R::kind);
  f({.name = "fallback"}, &R::fallback);
  f({.name = "direct"}, &R::direct);
  f({.name = "depth"}, &R::depth);
}

struct RowReading {
  RowReaderState reader;
  RowCounters counters;
};

template <class F>
void VisitFields(spec::Options<RowReading>, F&& f) {
  using R = RowReading;
  f({.name = "reader", .inlined = spec::Inline::kOnWire}, &R::reader);
  f({.name = "counters", .inlined = spec::Inline::kOnWire}, &R::counters);
}

}  // namespace permafrost::data
