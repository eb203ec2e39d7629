#include "nn/gpu/launch.h"

#include <utility>

namespace permafrost::nn::gpu {
namespace {

std::shared_ptr<const KernelLauncher>& Current() {
  // Never destroyed: the device may end before this process's static objects do.
  static auto& launcher = *new std::shared_ptr<const KernelLauncher>;
  return launcher;
}

}  // namespace

void UseKernels(std::shared_ptr<const KernelLauncher> launcher) { Current() = std::move(launcher); }
const std::shared_ptr<const KernelLauncher>& Kernels() { return Current(); }

}  // namespace permafrost::nn::gpu
