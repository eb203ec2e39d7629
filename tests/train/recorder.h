// A RunContext for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/runner.h"

namespace permafrost::train {

// Records what a run reports. Asks the run to stop when `stop` says so, and hands it commands at their steps.
class Recorder : public RunContext {
 public:
  StopRequest stop_requested() const override { return stop ? stop(progress) : StopRequest::kNone; }
  void OnProgress(const Progress& p) override { progress = p; }
  void OnEpoch(const EpochMetrics& m) override { epochs.push_back(m); }
  absl::Status StoreEpochs(bool is_last) override {
    stored_as_last.push_back(is_last);
    return store_epochs ? store_epochs() : absl::OkStatus();
  }
  void OnCheckpoint(int64_t step, absl::Duration) override { checkpoints.push_back(step); }
  void OnCheckpointFailed(const absl::Status& error) override { failed_checkpoints.push_back(error); }
  void Log(LogLevel, std::string_view line) override { log += std::string(line) + "\n"; }

  void OnGraphCache(const graphcache::Snapshot& snapshot,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> list) override {
    cache = snapshot;
    if (list != nullptr) entries = *list;
  }
  std::vector<graphcache::Command> TakeCacheCommands(int64_t after_sequence, int64_t step) override {
    std::vector<graphcache::Command> due;
    for (const graphcache::Command& c : commands)
      if (c.sequence > after_sequence && c.step <= step) due.push_back(c);
    return due;
  }

  std::function<StopRequest(const Progress&)> stop;
  std::function<absl::Status()> store_epochs;
  std::vector<graphcache::Command> commands;  // stamped with their steps
  graphcache::Snapshot cache;
  std::vector<graphcache::EntryInfo> entries;
  Progress progress;
  std::vector<EpochMetrics> epochs;
  std::vector<int64_t> checkpoints;
  std::vector<bool> stored_as_last;  // the argument of each StoreEpochs
  std::vector<absl::Status> failed_checkpoints;
  std::string log;
};

}  // namespace permafrost::train
