#include "train/loop/device_kernels.h"

#include <memory>
#include <utility>

#include "nn/gpu/operators.h"

namespace permafrost::train {

absl::Status UseKernelsOf(const device::Backend& backend) {
  nn::gpu::UseKernels(nullptr);
  absl::StatusOr<std::unique_ptr<KernelLauncher>> compiled = backend.CompileKernels(nn::gpu::kKernelSource);
  if (absl::IsUnimplemented(compiled.status())) return absl::OkStatus();
  if (!compiled.ok()) return compiled.status();
  nn::gpu::UseKernels(*std::move(compiled));
  return absl::OkStatus();
}

}  // namespace permafrost::train
