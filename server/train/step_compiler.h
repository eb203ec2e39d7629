// Makes the executables of one job: takes two batches of its data for a shape and has the device capture the step.
// Threads: the device thread. Borrows everything.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>

#include "device/cpu/storage.h"
#include "device/step_program.h"
#include "graphcache/executable.h"
#include "train/task.h"

namespace permafrost::train {

class StepCompiler final : public graphcache::Compiler {
 public:
  StepCompiler(const device::StepProgram& train, const device::StepProgram& eval, Task& task, c10::Device device)
      : programs_{&train, &eval}, task_(task), device_(device) {}

  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<graphcache::StepResult> RunEager(Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return static_cast<int64_t>(arena_.bytes()); }

 private:
  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  Task& task_;
  const c10::Device device_;
  device::Arena arena_;
};

}  // namespace permafrost::train
