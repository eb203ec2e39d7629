// Makes the executables of one job: takes two batches of its data for a shape and has the device capture the step.
// Threads: the device thread. Borrows everything.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "device/backend.h"
#include "device/step_program.h"
#include "graphcache/executable.h"
#include "train/task.h"

namespace permafrost::train {

// Why a device that does not record has no dynamic executables.
std::string OneShapeReason(DeviceKind device);

// Why there are no dynamic executables for the task on this device; empty: there are.
std::string NoDynamicReason(const device::Backend& backend, const Task& task);

class StepCompiler final : public graphcache::Compiler {
 public:
  StepCompiler(const device::StepProgram& train, const device::StepProgram& eval, Task& task,
               const device::Backend& backend, std::function<void(std::string_view line)> log)
      : programs_{&train, &eval},
        task_(task),
        backend_(backend),
        capturer_(backend.MakeCapturer()),
        log_(std::move(log)) {}

  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(Mode mode) override;
  // If the step resists being recorded for every shape, or the task or device has no such recording, the result is
  // Capture's.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(Mode mode, const BatchShape& shape) override;
  absl::Status WarmUp(Mode mode, const BatchShape& shape) override;
  std::string NoDynamicReason() const override { return train::NoDynamicReason(backend_, task_); }
  absl::StatusOr<graphcache::StepResult> RunEager(Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return capturer_->shared_bytes(); }
  // Gives back the memory that replays are served from, until the next one. Results that executables returned before
  // are not valid any more.
  void GiveBackMemory() { capturer_->GiveBackMemory(); }

 private:
  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  Task& task_;
  const device::Backend& backend_;
  const std::unique_ptr<device::Capturer> capturer_;
  const std::function<void(std::string_view line)> log_;
  std::array<bool, 2> resists_{};  // by Mode: each rung is recorded for itself
};

}  // namespace permafrost::train
