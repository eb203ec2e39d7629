// A runner on the CPU over one tiny graph, and the place where its jobs leave their files.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "temp_dir.h"
#include "tiny_graph.h"
#include "train/loop/torch_runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

class GraphRunnerTest : public testing::Test {
 protected:
  explicit GraphRunnerTest(const TinyGraphOptions& graph) : graph_(WriteTinyGraph(dir_.path() / "graph", graph)) {}

  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graph_, .job_directory = dir_.path() / job}, context);
  }
  std::unique_ptr<Task> TaskOf(const spec::TrainOptions& options) {
    auto task = Task::Create(options, graph_, at::kCPU, 2, [] { return true; });
    EXPECT_TRUE(task.ok()) << task.status();
    return *std::move(task);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  const TempDir dir_;
  const std::shared_ptr<const data::Graph> graph_;
  const std::unique_ptr<Runner> runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
};

}  // namespace permafrost::train
