#include "nn/kernels/bfloat16.h"

#include <hwy/base.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

#if HWY_ARCH_X86_64
#include <immintrin.h>
#endif

namespace permafrost::nn {

// A panel has this many columns: two vectors of sums. A pair is two consecutive factors of a sum, in one uint32.
constexpr int64_t kBfloat16Panel = 32;
static int64_t PairsOf(int64_t k) { return (k + 1) / 2; }
static int64_t PaddedColumns(int64_t n) { return (n + kBfloat16Panel - 1) / kBfloat16Panel * kBfloat16Panel; }

int64_t Bfloat16PackedSize(int64_t k, int64_t n) { return PaddedColumns(n) * PairsOf(k); }

#if HWY_ARCH_X86_64

bool HasBfloat16Products() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

namespace {

enum Bfloat16Slot : uint8_t { kLeftPairs, kRightPairs, kSlots };
// Returns this thread's memory for `size` pairs. It stays valid until the next call with the same slot.
uint32_t* RoomOfPairs(Bfloat16Slot slot, int64_t size) {
  thread_local std::vector<uint32_t> rooms[kSlots];
  std::vector<uint32_t>& room = rooms[slot];
  if (room.size() < static_cast<size_t>(size)) room.resize(static_cast<size_t>(size));
  return room.data();
}

}  // namespace

// From here on, no template of the standard library may be used. The template would be compiled for these
// instructions, and the linker could choose this copy for the whole program.
#define PERMAFROST_BFLOAT16_TARGETS "avx,avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16"
// Marks lambdas, which the pragma does not reach in every compiler.
#define PERMAFROST_BFLOAT16_ATTR __attribute__((target(PERMAFROST_BFLOAT16_TARGETS)))
// GCC 12 warns about undefined vectors in its own headers.
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
HWY_PUSH_ATTRIBUTES(PERMAFROST_BFLOAT16_TARGETS)
namespace {

constexpr int64_t kLanes = 16;
// The number of rows of a tile. The tile's accumulators fill 24 of 32 registers.
constexpr int kTile = 12;
// The size, in pairs, of the block of rows that is multiplied with one panel after the other. Block and panel
// together take at most half of an L1 cache.
constexpr int64_t kBlockPairs = 3 << 10;

HWY_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
// Returns a mask of the first `count` lanes, at most 16.
HWY_INLINE __mmask16 FirstLanes(int64_t count) {
  return count >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1U << (count < 0 ? 0 : count)) - 1);
}

// Both functions make 16 pairs: PairsOfRows from two rows, PairsInRow from 32 consecutive values of one row.
HWY_INLINE __m512i PairsOfRows(__m512 even, __m512 odd) {
  const auto low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(even)));
  const auto high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(odd)));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
HWY_INLINE __m512i PairsInRow(const float* row, int64_t count) {
  const __m512 first = _mm512_maskz_loadu_ps(FirstLanes(count), row);
  const __m512 second =
      count > kLanes ? _mm512_maskz_loadu_ps(FirstLanes(count - kLanes), row + kLanes) : _mm512_setzero_ps();
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}
// Returns the pairs of rows 2p and 2p + 1 of b, [k, n], for 16 columns from c on, with zeros beyond the last row and
// column.
HWY_INLINE __m512i PairsOfColumns(const float* b, int64_t k, int64_t n, int64_t p, int64_t c) {
  const __mmask16 mask = FirstLanes(n - c);
  const float* const even = b + 2 * p * n + c;
  return PairsOfRows(_mm512_maskz_loadu_ps(mask, even),
                     2 * p + 1 < k ? _mm512_maskz_loadu_ps(mask, even + n) : _mm512_setzero_ps());
}

// Writes the pairs within each row of a, [rows, k], to `to`, [rows, pairs].
void PairRows(const float* a, int64_t rows, int64_t k, uint32_t* to) {
  const int64_t pairs = (k + 1) / 2;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t p = 0; p < pairs; p += kLanes)
      _mm512_mask_storeu_epi32(to + r * pairs + p, FirstLanes(pairs - p), PairsInRow(a + r * k + 2 * p, k - 2 * p));
}
// Writes the pairs within each column of a, [k, m], to `to`, [pairs, m].
void PairColumns(const float* a, int64_t k, int64_t m, uint32_t* to) {
  for (int64_t p = 0; 2 * p < k; ++p)
    for (int64_t c = 0; c < m; c += kLanes)
      _mm512_mask_storeu_epi32(to + p * m + c, FirstLanes(m - c), PairsOfColumns(a, k, m, p, c));
}
// Writes the panel of b, [k, n], from column j on: [pairs, 32], with zeros beyond the last column.
void PanelOfRows(const float* b, int64_t k, int64_t n, int64_t j, uint32_t* to) {
  for (int64_t p = 0; p < (k + 1) / 2; ++p)
    for (int64_t c = 0; c < kBfloat16Panel; c += kLanes)
      _mm512_storeu_si512(to + p * kBfloat16Panel + c, PairsOfColumns(b, k, n, p, j + c));
}
// Writes the panels of b, [k, n], one after the other.
void PanelsOfRows(const float* b, int64_t k, int64_t n, uint32_t* to) {
  for (int64_t j = 0; j < n; j += kBfloat16Panel) PanelOfRows(b, k, n, j, to + j * ((k + 1) / 2));
}
// Writes the panels of weight^T. weight: [n, k].
void PanelsOfColumns(const float* weight, int64_t n, int64_t k, uint32_t* to) {
  const int64_t pairs = (k + 1) / 2, columns = (n + kBfloat16Panel - 1) / kBfloat16Panel * kBfloat16Panel;
  const __m512i stride = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                            _mm512_set1_epi32(kBfloat16Panel));
  for (int64_t j = 0; j < columns; ++j) {
    uint32_t* const column = to + j / kBfloat16Panel * kBfloat16Panel * pairs + j % kBfloat16Panel;
    for (int64_t p = 0; p < pairs; p += kLanes) {
      const __m512i of = j < n ? PairsInRow(weight + j * k + 2 * p, k - 2 * p) : _mm512_setzero_si512();
      _mm512_mask_i32scatter_epi32(column + p * kBfloat16Panel, FirstLanes(pairs - p), stride, of, 4);
    }
  }
}

// The left factors: pair p of row i is pairs[i * row + p * pair].
struct LeftPairs {
  const uint32_t* pairs;
  int64_t row, pair;
};

template <int kRows, class Epilogue>
HWY_INLINE void PairTile(int64_t pairs, const LeftPairs& left, const uint32_t* HWY_RESTRICT panel, int64_t i, int64_t j,
                         int64_t columns, const Epilogue& epilogue) {
  const uint32_t* const a = left.pairs + i * left.row;
  __m512 sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; ++p) {
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + p * kBfloat16Panel));
    const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + p * kBfloat16Panel + kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto v = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r * left.row + p * left.pair])));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], v, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], v, b1);
    }
  }
  const __mmask16 first = FirstLanes(columns), second = FirstLanes(columns - kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    epilogue(i + r, j, first, sum[r][0]);
    if (second != 0) epilogue(i + r, j + kLanes, second, sum[r][1]);
  }
}

// Multiplies the last rows of a product, which are too few for a whole tile, as a smaller tile.
template <int kRows, class Epilogue>
HWY_INLINE void LastPairs(int64_t rows, int64_t pairs, const LeftPairs& left, const uint32_t* panel, int64_t i,
                          int64_t j, int64_t columns, const Epilogue& epilogue) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      PairTile<kRows>(pairs, left, panel, i, j, columns, epilogue);
    } else {
      LastPairs<kRows - 1>(rows, pairs, left, panel, i, j, columns, epilogue);
    }
  }
}

// Calls epilogue(row, first column, mask of the 16 columns from there on, values) for the elements of [m, n].
template <class Epilogue>
void MultiplyPairs(int64_t m, int64_t n, int64_t k, const LeftPairs& left, const uint32_t* panels,
                   const Epilogue& epilogue) {
  const int64_t pairs = (k + 1) / 2;
  const int64_t tiles = kBlockPairs / (pairs > 0 ? pairs : 1) / kTile;
  const int64_t block = (tiles > 2 ? tiles : 2) * kTile;
  for (int64_t i0 = 0; i0 < m; i0 += block) {
    const int64_t end = Least(m, i0 + block);
    for (int64_t j = 0; j < n; j += kBfloat16Panel) {
      const int64_t columns = Least(kBfloat16Panel, n - j);
      int64_t i = i0;
      for (; i + kTile <= end; i += kTile) PairTile<kTile>(pairs, left, panels + j * pairs, i, j, columns, epilogue);
      LastPairs<kTile - 1>(end - i, pairs, left, panels + j * pairs, i, j, columns, epilogue);
    }
  }
}

void SumOfRows(int64_t rows, int64_t width, const float* values, float* sums) {
  for (int64_t c = 0; c < width; c += kLanes) {
    const __mmask16 mask = FirstLanes(width - c);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; ++r) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, values + r * width + c));
    _mm512_mask_storeu_ps(sums + c, mask, sum);
  }
}

template <bool kRelu>
void LinearOfPairs(int64_t rows, int64_t in, int64_t out, const LeftPairs& left, const uint32_t* panels,
                   const float* bias, float* y) {
  MultiplyPairs(rows, out, in, left, panels,
                [=](int64_t i, int64_t j, __mmask16 mask, __m512 v) PERMAFROST_BFLOAT16_ATTR {
                  __m512 sum = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias + j));
                  if constexpr (kRelu) {
                    sum = _mm512_maskz_mov_ps(
                        static_cast<__mmask16>(~_mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_LT_OQ)), sum);
                  }
                  _mm512_mask_storeu_ps(y + i * out + j, mask, sum);
                });
}

void StorePairs(int64_t m, int64_t n, int64_t k, const LeftPairs& left, const uint32_t* panels, float* to) {
  MultiplyPairs(m, n, k, left, panels, [=](int64_t i, int64_t j, __mmask16 mask, __m512 v) PERMAFROST_BFLOAT16_ATTR {
    _mm512_mask_storeu_ps(to + i * n + j, mask, v);
  });
}

// to [m, n] = left * b, where b is [k, n]. Makes each panel of b just before its use, so that the panel is in cache.
void StoreOuterPairs(int64_t m, int64_t n, int64_t k, const float* b, const LeftPairs& left, uint32_t* panel,
                     float* to) {
  for (int64_t j0 = 0; j0 < n; j0 += kBfloat16Panel) {
    PanelOfRows(b, k, n, j0, panel);
    MultiplyPairs(m, Least(kBfloat16Panel, n - j0), k, left, panel,
                  [=](int64_t i, int64_t j, __mmask16 mask, __m512 v)
                      PERMAFROST_BFLOAT16_ATTR { _mm512_mask_storeu_ps(to + i * n + j0 + j, mask, v); });
  }
}

void StoreActivePairs(int64_t m, int64_t n, int64_t k, const LeftPairs& left, const uint32_t* panels,
                      const float* active, float* to) {
  MultiplyPairs(m, n, k, left, panels, [=](int64_t i, int64_t j, __mmask16 mask, __m512 v) PERMAFROST_BFLOAT16_ATTR {
    const __m512 of = _mm512_maskz_loadu_ps(mask, active + i * n + j);
    const __mmask16 passes = _mm512_cmp_ps_mask(of, _mm512_setzero_ps(), _CMP_GT_OQ);
    _mm512_mask_storeu_ps(to + i * n + j, mask, _mm512_maskz_mov_ps(passes, v));
  });
}

}  // namespace
HWY_POP_ATTRIBUTES
#undef PERMAFROST_BFLOAT16_ATTR
#undef PERMAFROST_BFLOAT16_TARGETS

void PackBfloat16Forward(const float* weight, int64_t out, int64_t in, float* packed) {
  PanelsOfColumns(weight, out, in, reinterpret_cast<uint32_t*>(packed));
}
void PackBfloat16Backward(const float* weight, int64_t out, int64_t in, float* packed) {
  PanelsOfRows(weight, out, in, reinterpret_cast<uint32_t*>(packed));
}

void Bfloat16Linear(int64_t rows, int64_t in, int64_t out, const float* a, const float* packed, const float* bias,
                    bool relu, float* y) {
  uint32_t* const left = RoomOfPairs(kLeftPairs, rows * PairsOf(in));
  PairRows(a, rows, in, left);
  (relu ? LinearOfPairs<true> : LinearOfPairs<false>)(rows, in, out, {left, PairsOf(in), 1},
                                                      reinterpret_cast<const uint32_t*>(packed), bias, y);
}

void Bfloat16InputGradient(int64_t rows, int64_t in, int64_t out, const float* g, const float* packed,
                           const float* active, float* ga) {
  uint32_t* const left = RoomOfPairs(kLeftPairs, rows * PairsOf(out));
  PairRows(g, rows, out, left);
  const LeftPairs pairs{left, PairsOf(out), 1};
  const auto* const panels = reinterpret_cast<const uint32_t*>(packed);
  if (active == nullptr) return StorePairs(rows, in, out, pairs, panels, ga);
  StoreActivePairs(rows, in, out, pairs, panels, active, ga);
}

void Bfloat16Outer(int64_t rows, int64_t m, int64_t n, const float* left, const float* right, float* to) {
  uint32_t* const a = RoomOfPairs(kLeftPairs, PairsOf(rows) * m);
  uint32_t* const panel = RoomOfPairs(kRightPairs, Bfloat16PackedSize(rows, 1));
  PairColumns(left, rows, m, a);
  StoreOuterPairs(m, n, rows, right, {a, 1, m}, panel, to);
}

void Bfloat16ColumnSums(int64_t rows, int64_t width, const float* values, float* sums) {
  SumOfRows(rows, width, values, sums);
}

#else

bool HasBfloat16Products() { return false; }

// Stubs. HasBfloat16Products() returns false here, so nobody calls them.
void PackBfloat16Forward(const float*, int64_t, int64_t, float*) { std::abort(); }
void PackBfloat16Backward(const float*, int64_t, int64_t, float*) { std::abort(); }
void Bfloat16Linear(int64_t, int64_t, int64_t, const float*, const float*, const float*, bool, float*) { std::abort(); }
void Bfloat16InputGradient(int64_t, int64_t, int64_t, const float*, const float*, const float*, float*) {
  std::abort();
}
void Bfloat16Outer(int64_t, int64_t, int64_t, const float*, const float*, float*) { std::abort(); }
void Bfloat16ColumnSums(int64_t, int64_t, const float*, float*) { std::abort(); }

#endif

}  // namespace permafrost::nn
