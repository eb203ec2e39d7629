// Selects the instruction sets that the kernels are compiled for: the baseline, AVX2 and AVX-512 on x86, NEON on ARM.
// Include this file before any header of Highway. Instruction sets with vectors of unknown length (SVE, RVV) are left
// out, because such vectors cannot be elements of the kernels' arrays of registers.
#pragma once

#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_RVV | HWY_WASM)
