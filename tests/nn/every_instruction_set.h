// Runs tests on every instruction set that the kernels are compiled for and this processor supports. On x86 these are
// the baseline, AVX2 and AVX-512.
#pragma once

// This header defines the targets, so it must come before Highway's headers.
#include "nn/kernels/targets.h"

#include <hwy/highway.h>

#include <string>

namespace permafrost::nn {

// Calls body(name) for each instruction set, with the kernels compiled for it.
template <class Body>
void ForEveryInstructionSet(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    body(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace permafrost::nn
