// Batch norm with ReLU and dropout over chunks of rows, for kernels that keep a chunk in cache.
// Threads: any. Sums are added up in the order of rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace permafrost::nn {

// z: [rows, width]. Writes mean [width]. Writes squares [width], the sums of squared differences from the mean.
// Without rows, both are 0.
template <class T>
void ColumnMoments(const T* z, int64_t rows, int64_t width, T* mean, T* squares);

// out = z * scale + shift, then ReLU if `relu` is set; NaN stays NaN. scale, shift: [width].
template <class T>
void ScaleShift(const T* z, int64_t rows, int64_t width, const T* scale, const T* shift, bool relu, T* out);

// Dropout drops values by a pure function of (seed, step, layer, row, column). The hash is MurmurHash3's finalizer
// (Appleby), chained over the key, the row and the column.
inline constexpr uint32_t kDropoutColumnStride = 0x9e3779b9;  // 2^32 / golden ratio
inline constexpr uint32_t kDropoutMix1 = 0x85ebca6b, kDropoutMix2 = 0xc2b2ae35;

constexpr uint32_t DropoutMix(uint32_t h) {
  h ^= h >> 16;
  h *= kDropoutMix1;
  h ^= h >> 13;
  h *= kDropoutMix2;
  h ^= h >> 16;
  return h;
}

// Mixes the part of the key that stays the same throughout a job.
constexpr uint32_t DropoutSeed(int64_t seed, int64_t layer) {
  const auto bits = static_cast<uint64_t>(seed);
  uint32_t key = DropoutMix(static_cast<uint32_t>(bits) ^ kDropoutColumnStride);
  key = DropoutMix(key ^ static_cast<uint32_t>(bits >> 32));
  return DropoutMix(key ^ static_cast<uint32_t>(layer));
}

constexpr uint32_t DropoutKeyOf(uint32_t seed, int64_t step) {
  const auto now = static_cast<uint64_t>(step);
  return DropoutMix(DropoutMix(seed ^ static_cast<uint32_t>(now)) ^ static_cast<uint32_t>(now >> 32));
}

// Returns the threshold for dropout probability p: a value is dropped if its hash is below the threshold.
inline uint32_t DropoutThreshold(double p) { return static_cast<uint32_t>(std::min(std::ldexp(p, 32), 4294967295.0)); }

// Selects the values that dropout drops: those whose hash of key, row and column is below `threshold`.
struct DropoutMask {
  uint32_t key = 0, threshold = 0;
};

// y is 0 where x is dropped, and x * kept elsewhere. x, y: [rows, width], may be the same memory. The hash keys row r
// by row_keys[r], or by first_row + r if row_keys is null.
template <class T>
void DropRows(const DropoutMask& mask, T kept, const int64_t* row_keys, int64_t first_row, int64_t rows, int64_t width,
              const T* x, T* y);

// The backward of out = relu(...) * kept. The gradient passes, times kept, except where out <= 0. If `out` is null,
// it passes everywhere. Writes sum [width], the sum of the passed gradients, and dot [width], the sum of the passed
// gradients times z - mean.
template <class T>
void NormGradientSums(const T* grad, const T* out, const T* z, const T* mean, T kept, int64_t rows, int64_t width,
                      T* sum, T* dot);

// gz = scale * (g - mean_grad - (z - mean) * mean_dot), where g is the passed gradient of NormGradientSums.
template <class T>
void NormGradient(const T* grad, const T* out, const T* z, const T* mean, T kept, const T* scale, const T* mean_grad,
                  const T* mean_dot, int64_t rows, int64_t width, T* gz);

// to[i] = the sum of parts[c * stride + i] over c in [0, count), in that order, for i in [0, size). count >= 1.
template <class T>
void AddParts(const T* parts, int64_t stride, int64_t count, int64_t size, T* to);

}  // namespace permafrost::nn
