// Counts what a feature cache did, for metrics and for people. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>

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

// Returns what was counted after `before`; fields that describe a state are taken from `now`.
RowCounters Since(const RowCounters& before, RowCounters now);

struct RowReaderState {
  std::string kind;      // "io_uring", "pread"; empty: the table is mapped
  std::string fallback;  // why it is not the first choice; empty: it is
  bool direct = false;
  int64_t depth = 0;  // reads at once
};

struct RowReading {
  RowReaderState reader;
  RowCounters counters;
};

}  // namespace permafrost::data
