// Tools for work on several threads: parallel regions of this library, work by chunks of rows, and the products of an
// MLP.
// Threads: any. The bits of work by chunks do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <cstdint>

#include "base/crew.h"
#include "base/operators.h"
#include "nn/kernels/bfloat16.h"
#include "nn/kernels/linear.h"
#include "nn/kernels/norm.h"

namespace permafrost::nn {

// Returns how many threads ParallelFor uses.
inline int ThreadCount() { return OperatorThreads() == 0 ? at::get_num_threads() : OperatorThreads(); }

// Splits the range among threads and calls body(begin, end) on each part, as at::parallel_for does. The parts run on
// a crew if OperatorThreads() is set, else on libtorch's threads. A range of at most `grain` (at least 1) is one
// part. A call from within `body` runs on one thread. The body must not call operators of libtorch.
template <class Body>
void ParallelFor(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  const int64_t length = end - begin;
  if (length <= 0) return;
  if (c10::ParallelGuard::is_enabled()) return body(begin, end);
  const int own = OperatorThreads();
  if (own == 0) return at::parallel_for(begin, end, grain, body);
  const int64_t parts = std::min<int64_t>(own, (length + grain - 1) / grain);
  if (parts <= 1) return body(begin, end);
  struct Region {
    const Body& body;
    int64_t begin, end, part;
  } const region{body, begin, end, (length + parts - 1) / parts};
  Crew::OfThisThread(own).Run(
      static_cast<int>(parts),
      [](const void* context, int number) {
        const Region& r = *static_cast<const Region*>(context);
        const c10::ParallelGuard in_region(true);
        const int64_t first = r.begin + number * r.part;
        if (first < r.end) r.body(first, std::min(r.end, first + r.part));
      },
      &region);
}

// Splits rows into contiguous chunks. The bounds of chunks depend only on the rows, `partial` and `most`, never on
// threads. So sums added in the order of chunks have equal bits for any number of threads. A value type.
class RowChunks {
 public:
  // With 64 floats a row, one array of a chunk fills an L1 cache, and all arrays of a layer's chunk fit into an L2
  // cache.
  static constexpr int64_t kRows = 128;

  // partial: the number of values that each chunk keeps for its sums. The larger `partial` is, the fewer chunks there
  // are, so that adding up the chunks stays cheap. most: the largest number of chunks.
  RowChunks(int64_t rows, int64_t partial, int64_t most = kMost) : rows_(rows), count_(CountOf(rows, partial, most)) {}
  // Returns the largest number of chunks that up to `rows` rows are split into.
  static int64_t CountOf(int64_t rows, int64_t partial, int64_t most = kMost) {
    const int64_t fitting = std::clamp(kPartialValues / std::max<int64_t>(1, partial), kFewest, most);
    return std::clamp<int64_t>((rows + kRows - 1) / kRows, 1, fitting);
  }

  int64_t count() const { return count_; }
  int64_t begin(int64_t chunk) const { return rows_ * chunk / count_; }
  int64_t size(int64_t chunk) const { return begin(chunk + 1) - begin(chunk); }

 private:
  static constexpr int64_t kPartialValues = 1 << 20, kFewest = 8, kMost = 64;
  int64_t rows_, count_;
};

template <class T>
const T* Read(const at::Tensor& t) {
  return t.const_data_ptr<T>();
}
template <class T>
T* Write(const at::Tensor& t) {
  return t.mutable_data_ptr<T>();
}

// Returns the precision in which an operator on the CPU multiplies x with its weights: kBfloat16 if `bfloat16` is
// true, else kFull. Errors: c10::Error if the rounded products need another type or processor.
inline Products ProductsOf(const at::Tensor& x, bool bfloat16) {
  if (!bfloat16) return Products::kFull;
  TORCH_CHECK(x.scalar_type() == at::kFloat && HasBfloat16Products(),
              "products of bfloat16 want float32 tensors and a processor with AVX512-BF16");
  return Products::kBfloat16;
}

// A region with fewer multiplications stays on one thread. At 2^19 multiplications (30 us of work) two threads were
// as fast as one: `bench/run parallel --filter products`, on the machine that bench/MEASUREMENTS.md describes.
inline constexpr int64_t kParallelProducts = 1 << 20;
// The limit for regions whose work is counted in gathered values. At 2^15 values (25 us of work) two threads were as
// fast as one (`--filter gathers`).
inline constexpr int64_t kParallelGathers = 1 << 16;
// Returns how many chunks one thread takes at a time: all chunks if the region is not split among threads.
inline int64_t ChunkGrain(const RowChunks& chunks, int64_t work, int64_t limit = kParallelProducts) {
  return work < limit ? chunks.count() : 1;
}

// Calls body(chunk, first row, number of rows) for each chunk.
template <class Body>
void ForChunks(const RowChunks& chunks, int64_t grain, const Body& body) {
  ParallelFor(0, chunks.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) body(c, chunks.begin(c), chunks.size(c));
  });
}

// The weights of an MLP, or their gradients: [H, C], [H], [D, H], [D], contiguous.
struct MlpWeights {
  at::Tensor w1, b1, w2, b2;
  Products kind = Products::kFull;
  MlpWidths widths() const { return {w1.size(1), w1.size(0), w2.size(0), kind}; }
  int64_t products() const { return w1.numel() + w2.numel(); }  // multiplications for one row
  int64_t values() const { return w1.numel() + b1.numel() + w2.numel() + b2.numel(); }
  MlpWeights EmptyLike() const {
    return {at::empty_like(w1), at::empty_like(b1), at::empty_like(w2), at::empty_like(b2), kind};
  }
};

template <class T>
struct PackedMlp {
  at::Tensor storage;
  const T *first, *second;
};

// Packs both matrices, on two threads if that pays.
template <class T, class Pack>
PackedMlp<T> PackMlp(const MlpWeights& w, int64_t first_size, int64_t second_size, const Pack& pack) {
  at::Tensor storage = at::empty({first_size + second_size}, w.w1.options());
  T* const to = Write<T>(storage);
  ParallelFor(0, 2, w.products() < kParallelProducts ? 2 : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor& weight = i == 0 ? w.w1 : w.w2;
      pack(Read<T>(weight), weight.size(0), weight.size(1), w.kind, to + (i == 0 ? 0 : first_size));
    }
  });
  return {storage, to, to + first_size};
}
template <class T>
PackedMlp<T> PackMlpForward(const MlpWeights& w) {
  const MlpWidths widths = w.widths();
  return PackMlp<T>(w, PackedSize<T>(widths.in, widths.hidden, w.kind),
                    PackedSize<T>(widths.hidden, widths.out, w.kind), PackForward<T>);
}
template <class T>
PackedMlp<T> PackMlpBackward(const MlpWeights& w) {
  const MlpWidths widths = w.widths();
  return PackMlp<T>(w, PackedSize<T>(widths.hidden, widths.in, w.kind),
                    PackedSize<T>(widths.out, widths.hidden, w.kind), PackBackward<T>);
}

// The backward pass of an MLP over at most `rows` rows. Memory sizes depend on `rows` alone, not on the chunks that
// run.
template <class T>
class MlpBackwardChunks {
 public:
  MlpBackwardChunks(const MlpWeights& w, int64_t rows)
      : widths_(w.widths()), values_(w.values()), packed_(PackMlpBackward<T>(w)) {
    const int64_t most = RowChunks::CountOf(rows, values_);
    // Sized for the rows of the largest chunk.
    scratch_size_ = ProductScratch<T>(std::max(RowChunks::kRows, (rows + most - 1) / most), w.kind);
    const auto options = w.w1.options();
    scratch_ = at::empty({most, scratch_size_}, options);
    parts_ = at::empty({most, values_}, options);
    hidden_gradient_ = at::empty({rows, widths_.hidden}, options);
  }

  // Processes chunk c, rows [begin, begin + size). Writes these rows of gx, and the chunk's share of the weights'
  // gradients. x: [rows, in]; hidden: [rows, hidden]; grad: [rows, out]; gx: [rows, in].
  void Run(int64_t c, int64_t begin, int64_t size, const T* x, const T* hidden, const T* grad, T* gx) const {
    T* const w1 = Write<T>(parts_) + c * values_;
    T* const b1 = w1 + widths_.hidden * widths_.in;
    T* const w2 = b1 + widths_.hidden;
    MlpBackward<T>(widths_, size, x + begin * widths_.in, hidden + begin * widths_.hidden, grad + begin * widths_.out,
                   packed_.first, packed_.second, Write<T>(hidden_gradient_) + begin * widths_.hidden,
                   Write<T>(scratch_) + c * scratch_size_, gx + begin * widths_.in,
                   {w1, b1, w2, w2 + widths_.out * widths_.hidden});
  }

  // Adds up the gradients of all chunks, but writes only part c of `to`, which is split into `count` parts. Call it
  // for each c < count, after Run has finished for all chunks.
  void AddShare(int64_t c, int64_t count, const MlpWeights& to) const {
    int64_t before = 0;
    for (const at::Tensor* t : {&to.w1, &to.b1, &to.w2, &to.b2}) {
      const int64_t from = std::clamp<int64_t>(values_ * c / count - before, 0, t->numel());
      const int64_t until = std::clamp<int64_t>(values_ * (c + 1) / count - before, 0, t->numel());
      AddParts<T>(Read<T>(parts_) + before + from, values_, count, until - from, Write<T>(*t) + from);
      before += t->numel();
    }
  }

 private:
  MlpWidths widths_;
  int64_t values_, scratch_size_ = 0;
  PackedMlp<T> packed_;
  at::Tensor scratch_, parts_, hidden_gradient_;
};

}  // namespace permafrost::nn
