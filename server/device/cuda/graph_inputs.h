// A graph of a device reads its batch from one buffer, into which each batch is copied.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "device/staging.h"
#include "device/step_program.h"

namespace permafrost::device {

class GraphInputs {
 public:
  // Allocates memory for batches of this shape, and does not copy `batch`. Resident tensors are read where they are.
  GraphInputs(const graphcache::StepInputs& batch, c10::Device device);

  const graphcache::StepInputs& get() const { return inputs_; }
  // Returns the bytes of its own memory.
  int64_t bytes() const;
  // Enqueues the copy of a batch. `staging` brings what is on the host; a tensor on the device is copied unless it is
  // the one of the batch before. Errors: Internal for a batch of another shape, or with other resident tensors.
  absl::Status Take(const graphcache::StepInputs& batch, Staging& staging);

 private:
  absl::Status Check(const graphcache::StepInputs& batch) const;

  const InputLayout layout_;
  const at::Tensor buffer_;  // bytes
  graphcache::StepInputs inputs_;
  std::vector<size_t> own_;        // places of inputs that come on the device and are not resident
  std::vector<at::Tensor> given_;  // by place: the tensor that such an input was copied from last
};

}  // namespace permafrost::device
