// Does every step of a run: batches go through the job's graph cache and come out as a replay, a capture or an eager
// step.
// Threads: the device thread. Borrows what it is made of; lives for one run.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/group.h"
#include "device/backend.h"
#include "graphcache/graph_cache.h"
#include "nn/optimizer.h"
#include "train/loop/step_programs.h"
#include "train/runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

class StepEngine {
 public:
  // `group`: the ranks that share the training steps; nullptr: there are no others.
  StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer, const device::Backend& backend,
             RunContext& context, collective::Group* group = nullptr);
  StepEngine(const StepEngine&) = delete;
  ~StepEngine();

  // Makes the captures that the cache is to have before the next step: GraphCache::CaptureNext and Apply. A cleared
  // cache empties those of a device that keeps graphs, before anything is captured again.
  absl::Status CaptureNext(int64_t step);
  absl::Status Apply(const graphcache::Command& command, int64_t step);

  // One training step on `batch`, which is padded to what the cache chose. `step`: optimizer steps done. Adds what each
  // phase took to `seconds`; on asynchronous devices that is the time to enqueue it.
  absl::Status Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds);
  // One evaluation step. Returns [padded graphs, outputs], valid until the next step.
  absl::StatusOr<at::Tensor> Evaluate(HostBatch& batch, int64_t step);

  // The sums since their last reset: losses over training steps, loss and absolute error over evaluation steps.
  ErrorSums& losses() { return losses_; }
  const ErrorSums& losses() const { return losses_; }
  ErrorSums& eval_losses() { return eval_losses_; }
  ErrorSums& eval_errors() { return eval_errors_; }
  graphcache::GraphCache& cache() { return cache_; }  // steps, captures and commands go through this engine
  const graphcache::GraphCache& cache() const { return cache_; }

  // Tells the context of the cache, and of its entries where it is time to or `with_entries` says so.
  void Report(bool with_entries = false);

 private:
  using Clock = std::chrono::steady_clock;
  void OnPhase(int phase);
  absl::StatusOr<graphcache::StepResult> Run(Mode mode, HostBatch& batch, int64_t step);
  // These tell a device that keeps graphs of steps and policies, and empty it.
  absl::Status EndStepOnDevice();
  absl::Status EmptyDevice(EmptyReason reason);
  void AnnouncePolicyOnDevice();
  void TellSealed();

  // Tells those who make batches ready how the cache will pad them.
  void TellTask();

  const device::Backend& backend_;
  RunContext& context_;
  Task& task_;
  collective::Group* const group_;
  ErrorSums losses_, eval_losses_, eval_errors_;
  const device::StepProgram train_, eval_;
  StepCompiler compiler_;
  graphcache::GraphCache cache_;
  Clock::time_point phase_begin_;
  PhaseSeconds* phase_seconds_ = nullptr;  // of the step that runs
  Clock::time_point next_entries_ = Clock::time_point::min();
  bool told_sealed_ = false;
  int64_t thresholds_ = 0;  // how often the driver's memory passed its threshold
};

}  // namespace permafrost::train
