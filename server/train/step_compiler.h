// Makes the executables of one job: takes two batches of its data for a shape and has the device capture the step.
// Threads: the device thread. Borrows everything.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <vector>

#include "device/cpu/storage.h"
#include "device/step_program.h"
#include "graphcache/executable.h"
#include "train/task.h"

namespace permafrost::train {

class StepCompiler final : public graphcache::Compiler {
 public:
  StepCompiler(const device::StepProgram& train, const device::StepProgram& eval, Task& task, c10::Device device)
      : programs_{&train, &eval}, task_(task), device_(device) {}

  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(graphcache::Mode mode,
                                                                  const BatchShape& shape) override;
  absl::Status RunEager(graphcache::Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return static_cast<int64_t>(arena_.bytes()); }

  // What the last step returned, eager or replayed; valid until the next one.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  Task& task_;
  const c10::Device device_;
  device::Arena arena_;
  std::vector<at::Tensor> outputs_;
};

}  // namespace permafrost::train
