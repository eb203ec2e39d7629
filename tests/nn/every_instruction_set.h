// The instruction sets, of those that the kernels are compiled for, that this processor can run: on x86 the baseline,
// AVX2 and AVX-512.
#pragma once

// Says which targets there are, and so stands before Highway's headers.
#include "nn/kernels/targets.h"

#include <hwy/highway.h>

#include <string>

namespace permafrost::nn {

// body(name of the instruction set), with the kernels of that one.
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
