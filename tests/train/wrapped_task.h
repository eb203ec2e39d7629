// A task that forwards everything to another task. Tests override a part of it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "train/tasks/task.h"

namespace permafrost::train {

class WrappedTask : public Task {
 public:
  explicit WrappedTask(std::unique_ptr<Task> task) : task_(std::move(task)) {}

  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override { return task_->Forward(inputs, mode); }
  nn::TensorSet& tensors() override { return task_->tensors(); }
  std::string Describe() const override { return task_->Describe(); }
  int64_t num_outputs() const override { return task_->num_outputs(); }
  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override {
    return task_->NameRows(split, ids);
  }
  absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split split, bool keep_predictions,
                                                          const std::function<bool()>& keep_going) override {
    return task_->EvaluateWhole(split, keep_predictions, keep_going);
  }
  const graphcache::ShapeSchedule& plan() const override { return task_->plan(); }
  graphcache::GraphSizes sizes() const override { return task_->sizes(); }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override {
    return task_->Schedules(keep_going);
  }
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override {
    return task_->Probes(mode, shape);
  }
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override { return task_->DynamicProbe(mode, probe); }
  int64_t batches_per_epoch() const override { return task_->batches_per_epoch(); }
  int64_t size(data::Split split) const override { return task_->size(split); }
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override {
    return task_->TrainBatches(epoch, first_batch);
  }
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override { return task_->EvalBatches(split); }

 private:
  const std::unique_ptr<Task> task_;
};

}  // namespace permafrost::train
