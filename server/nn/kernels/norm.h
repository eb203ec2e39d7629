// Batch norm with ReLU and dropout over chunks of rows, for kernels that keep a chunk in cache.
// Threads: any. Sums are in the order of rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace permafrost::nn {

// z: [rows, width]. Writes mean [width] and squares [width], the sums of squared differences from that mean; both 0
// where there is no row.
template <class T>
void ColumnMoments(const T* z, int64_t rows, int64_t width, T* mean, T* squares);

// out = z * scale + shift, then ReLU if `relu`; NaN stays. scale, shift: [width].
template <class T>
void ScaleShift(const T* z, int64_t rows, int64_t width, const T* scale, const T* shift, bool relu, T* out);

// Dropout chooses the values to drop by a pure function of (seed, step, layer, row, column). Their hash is
// MurmurHash3's finalizer (Appleby), chained over the key, the row and the column.
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

// Mixes the part of the key that does not change in a job.
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

// Hashes below it are dropped.
inline uint32_t DropoutThreshold(double p) { return static_cast<uint32_t>(std::min(std::ldexp(p, 32), 4294967295.0)); }

// Tells which values of the rows dropout drops: those whose hash of key, row and column is below threshold.
struct DropoutMask {
  uint32_t key = 0, threshold = 0;
};

// y is 0 where dropped, and x times kept elsewhere. x, y: [rows, width], which may be the same. The key of row r in the
// hash: row_keys[r], or first_row + r where row_keys is null.
template <class T>
void DropRows(const DropoutMask& mask, T kept, const int64_t* row_keys, int64_t first_row, int64_t rows, int64_t width,
              const T* x, T* y);

// The backward of y = relu(...) * kept, where `out` is y: the gradient passes unless out <= 0, times kept. It passes
// everywhere if `out` is null. Writes sum [width] of the gradients that pass and dot [width], of each times z - mean.
template <class T>
void NormGradientSums(const T* grad, const T* out, const T* z, const T* mean, T kept, int64_t rows, int64_t width,
                      T* sum, T* dot);

// gz = scale * (g - mean_grad - (z - mean) * mean_dot) with g as above.
template <class T>
void NormGradient(const T* grad, const T* out, const T* z, const T* mean, T kept, const T* scale, const T* mean_grad,
                  const T* mean_dot, int64_t rows, int64_t width, T* gz);

// to[i] = the sum of parts[c * stride + i] over c in [0, count), in that order, for i in [0, size). count >= 1.
template <class T>
void AddParts(const T* parts, int64_t stride, int64_t count, int64_t size, T* to);

}  // namespace permafrost::nn
