// A runner on the CPU over a hundred tiny graphs, and the place where its jobs leave their files.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {

class RunnerTest : public testing::Test {
 protected:
  static constexpr int kGraphs = 100;  // split 80 / 10 / 10

  void SetUp() override {
    graphs_ = ImportTinyGraphs(dir_.path(), kGraphs);
    runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  }
  static spec::TrainOptions Options() {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2};
    options.optimizer.learning_rate = 1e-2;
    options.epochs = 4;
    options.batch_size = 9;  // 9 steps an epoch, the last one partial
    options.seed = 3;
    // Otherwise the machine's speed would decide when checkpoints are written.
    options.checkpoint.every_seconds = 0;
    return options;
  }
  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graphs_, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> graphs_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace permafrost::train
