// Makes the executables of one job: finds two batches of its graphs for a shape and has the device capture the step.
// Threads: the device thread. Borrows everything.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "device/step_program.h"
#include "device/storage.h"
#include "graphcache/executable.h"

namespace permafrost::train {

class StepCompiler final : public graphcache::Compiler {
 public:
  StepCompiler(const device::StepProgram& train, const device::StepProgram& eval, const data::Batcher& batcher,
               c10::Device device)
      : programs_{&train, &eval}, batcher_(batcher), device_(device) {}

  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(graphcache::Mode mode,
                                                                  const BatchShape& shape) override;
  absl::Status RunEager(graphcache::Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return static_cast<int64_t>(arena_.bytes()); }

  // What the last step returned, eager or replayed; valid until the next one.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  // Graphs of the mode's splits that fit `shape` together; all that do for which = 0, one for which = 1.
  std::vector<uint32_t> ProbeGraphs(graphcache::Mode mode, const BatchShape& shape, int which) const;

  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  const data::Batcher& batcher_;
  const c10::Device device_;
  device::Arena arena_;
  std::vector<at::Tensor> outputs_;
  std::array<data::PaddedBatch, 2> probes_;
};

}  // namespace permafrost::train
