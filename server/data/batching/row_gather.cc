#include "data/batching/row_gather.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/buffer.h"
#include "base/parallel.h"
#include "base/status.h"
#include "data/store/float_conversion.h"
#include "data/store/format.h"

namespace permafrost::data {

void SetBounds(std::span<const int64_t> rows_of_segments, SegmentBounds& bounds) {
  bounds.assign(1, 0);
  for (const int64_t rows : rows_of_segments) bounds.push_back(bounds.back() + rows);
}

void MoveOffsets(AlignedVector<int64_t>& offsets, const SegmentBounds& from, const SegmentBounds& to,
                 std::span<const int64_t> real) {
  const int64_t total = offsets.back();
  MoveRows(offsets, from, to, real, 1);
  FillOffsetPadding(offsets, to, real, total);
}

void FillOffsetPadding(AlignedVector<int64_t>& offsets, const SegmentBounds& bounds, std::span<const int64_t> real,
                       int64_t total) {
  offsets.resize(static_cast<size_t>(bounds.back()) + 1);
  int64_t next = total;
  offsets.back() = total;
  for (size_t s = real.size(); s-- > 0;) {
    std::fill(offsets.begin() + bounds[s] + real[s], offsets.begin() + bounds[s + 1], next);
    if (real[s] > 0) next = offsets[static_cast<size_t>(bounds[s])];
  }
}

namespace {

constexpr int64_t kEdgeRowsPiece = 4096;

template <class T>
absl::Status GatherInto(const EdgeRows& rows, std::span<const uint64_t> places, int threads, AlignedVector<T>& out) {
  std::atomic<bool> damaged{false};
  ParallelFor(threads, std::ssize(places), kEdgeRowsPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e) {
      if (!rows.Read(places[static_cast<size_t>(e)], out.data() + e * rows.width())) damaged = true;
    }
  });
  return damaged ? rows.Damage() : absl::OkStatus();
}

template <class T>
void Resize(AlignedVector<T>& values, int64_t real, int64_t padded, int64_t width) {
  values.resize(static_cast<size_t>(real * width));
  values.resize(static_cast<size_t>(padded * width), T{0});
}

}  // namespace

void EdgeGather::Request(std::span<const uint64_t> places, PageAdvisor& advisor) const {
  if (!reads()) return;
  for (const uint64_t place : places) advisor.Request(rows_.ReadsOfId(place));
  // Flushes now, because the ids must be read to find the pages of the rows.
  advisor.Flush();
  for (const uint64_t place : places) advisor.Request(rows_.ReadsOfRow(place));
}

absl::Status EdgeGather::Gather(std::span<const uint64_t> places, int64_t padded, AlignedVector<int64_t>& ints,
                                AlignedVector<float>& floats) const {
  if (!reads()) return absl::OkStatus();
  const auto real = std::ssize(places);
  Pad(real, padded, ints, floats);
  if (rows_.categorical()) return GatherInto(rows_, places, threads_, ints);
  return GatherInto(rows_, places, threads_, floats);
}

void EdgeGather::Pad(int64_t real, int64_t padded, AlignedVector<int64_t>& ints, AlignedVector<float>& floats) const {
  if (!reads()) return;
  if (rows_.categorical()) {
    Resize(ints, real, padded, rows_.width());
  } else {
    Resize(floats, real, padded, rows_.width());
  }
}

namespace {

constexpr int64_t kPiece = 512;
// A loop prefetches the row that comes kAhead rows later, but at most kPrefetchedBytes of it. The processor itself
// prefetches the rest of a longer row.
constexpr int64_t kAhead = 8;
constexpr uint64_t kPrefetchedBytes = 512;
// A batch of at least this size does not stay in the caches until it is read.
constexpr uint64_t kPastCachesBytes = uint64_t{4} << 20;

void PrefetchBegin(const void* begin, uint64_t bytes) { PrefetchLines(begin, std::min(bytes, kPrefetchedBytes)); }

// Copies `count` floats; `from` needs no alignment. With `past_caches`, the stores bypass the caches: they do not
// first read the cache lines that they fill, and do not displace other data. FinishStores must then follow before
// other threads read the floats.
void CopyFloats(const std::byte* from, int64_t count, float* to, [[maybe_unused]] bool past_caches) {
#ifdef __SSE2__
  if (past_caches) {
    constexpr int64_t kFloats = sizeof(__m128i) / sizeof(float);
    for (; count > 0 && reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) != 0; --count, from += sizeof(float)) {
      std::memcpy(to++, from, sizeof(float));
    }
    for (; count >= kFloats; count -= kFloats, from += sizeof(__m128i), to += kFloats) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
  }
#endif
  if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}
void FinishStores() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

absl::Status Damage(std::initializer_list<absl::Status> columns) {
  for (const absl::Status& status : columns) PF_RETURN_IF_ERROR(status);
  return absl::DataLossError("the graph's node features: what was read cannot be: the file changed while in use");
}

// Copies a row that FindRow returned. If `row` is null, writes zeros and sets `damaged`.
void CopyRow(const DenseFeatures& dense, const std::byte* row, float* to, bool past_caches,
             std::atomic<bool>& damaged) {
  if (row == nullptr) {
    damaged = true;
    std::fill_n(to, dense.width, 0.0f);
  } else if (dense.type == DataType::kFloat32) {
    CopyFloats(row, dense.width, to, past_caches);
  } else {
    ToFloat(dense.type, row, dense.width, to, dense.scales.data());
  }
}

}  // namespace

const std::byte* FeatureGather::FindRow(const DenseFeatures& dense, NodeId node) const {
  if (node >= nodes_) return nullptr;
  if (rows_ != nullptr) return rows_->Find(node);
  const uint64_t begin = dense.OffsetOf(node);
  return dense.bytes.Touch(begin, begin + dense.row_bytes()) ? dense.bytes.data() + begin : nullptr;
}

void FeatureGather::PrefetchRow(const DenseFeatures& dense, NodeId node) const {
  if (node >= nodes_) return;
  const std::byte* const row = rows_ != nullptr ? rows_->Find(node) : dense.bytes.data() + dense.OffsetOf(node);
  if (row != nullptr) PrefetchBegin(row, dense.row_bytes());
}

absl::Status FeatureGather::Request(std::span<const NodeId> nodes, PageAdvisor& advisor) {
  if (const auto* dense = std::get_if<DenseFeatures>(&features_)) {
    for (const NodeId node : nodes) {
      const uint64_t begin = dense->OffsetOf(node);
      advisor.Request(dense->bytes.Reads(begin, begin + dense->row_bytes()));
    }
  } else if (const auto* sparse = std::get_if<SparseFeatures>(&features_)) {
    for (const NodeId node : nodes) advisor.Request(sparse->offsets.Reads(node, node + uint64_t{2}));
    advisor.Flush();
    PF_RETURN_IF_ERROR(CountNonzeros(nodes).status());
    for (const Extent& extent : extents_) {
      if (extent.size == 0) continue;
      advisor.Request(sparse->columns.Reads(extent.begin, extent.begin + extent.size));
      if (!sparse->values.empty()) advisor.Request(sparse->values.Reads(extent.begin, extent.begin + extent.size));
    }
  }
  advisor.Flush();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FeatureGather::CountNonzeros(std::span<const NodeId> nodes) {
  const auto* sparse = std::get_if<SparseFeatures>(&features_);
  if (sparse == nullptr) return 0;
  const uint64_t* const offsets = sparse->offsets.data();
  const uint64_t entries = sparse->columns.size();
  extents_.resize(nodes.size());
  std::atomic<bool> damaged{false};
  ParallelFor(threads_, static_cast<int64_t>(nodes.size()), kPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) PrefetchLine(offsets + nodes[static_cast<size_t>(i + kAhead)]);
      const NodeId node = nodes[static_cast<size_t>(i)];
      Extent& extent = extents_[static_cast<size_t>(i)];
      extent = {};
      if (node >= nodes_ || !sparse->offsets.Touch(node, node + uint64_t{2})) {
        damaged = true;
        continue;
      }
      extent.begin = std::min(offsets[node], entries);
      extent.size = std::clamp(offsets[node + uint64_t{1}], extent.begin, entries) - extent.begin;
    }
  });
  if (damaged) return Damage({sparse->offsets.status()});
  int64_t total = 0;
  for (Extent& extent : extents_) {
    extent.to = total;
    total += static_cast<int64_t>(extent.size);
  }
  return total;
}

absl::Status FeatureGather::Dense(std::span<const NodeId> nodes, const SegmentBounds& real, const SegmentBounds& padded,
                                  std::span<float> out) {
  const auto& dense = std::get<DenseFeatures>(features_);
  if (!dense.scales.Touch(0, dense.scales.size())) return dense.scales.status();
  const bool past_caches = out.size_bytes() >= kPastCachesBytes;
  std::atomic<bool> damaged{false};
  ParallelFor(threads_, static_cast<int64_t>(nodes.size()), kPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) PrefetchRow(dense, nodes[static_cast<size_t>(i + kAhead)]);
      float* const to = out.data() + MoveRow(i, real, padded) * dense.width;
      CopyRow(dense, FindRow(dense, nodes[static_cast<size_t>(i)]), to, past_caches, damaged);
    }
    FinishStores();
  });
  return damaged ? Damage({dense.bytes.status()}) : absl::OkStatus();
}

absl::Status FeatureGather::Means(const SampledSubgraph& subgraph, const SegmentBounds& real,
                                  const SegmentBounds& padded, std::span<float> out) {
  const auto& dense = std::get<DenseFeatures>(features_);
  if (!dense.scales.Touch(0, dense.scales.size())) return dense.scales.status();
  const auto width = static_cast<size_t>(dense.width);
  const auto count = static_cast<int64_t>(subgraph.nodes.size());
  const auto mean_of = [&](int64_t row) { return out.data() + 2 * MoveRow(row, real, padded) * dense.width; };
  std::atomic<bool> damaged{false};
  // Stores through the caches, since the next loop reads these rows again as neighbours of other rows.
  ParallelFor(threads_, count, kPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) PrefetchRow(dense, subgraph.nodes[static_cast<size_t>(i + kAhead)]);
      CopyRow(dense, FindRow(dense, subgraph.nodes[static_cast<size_t>(i)]), mean_of(i) + width, false, damaged);
    }
  });
  const bool past_caches = out.size_bytes() >= kPastCachesBytes;
  const auto inner = static_cast<int64_t>(subgraph.sources.size()), edges = subgraph.edges();
  const auto last_neighbor = [&](int64_t e) { return subgraph.last_neighbors[static_cast<size_t>(e - inner)]; };
  sums_.resize(width * static_cast<size_t>(threads_));
  ParallelFor(threads_, count, kPiece, [&](int64_t begin, int64_t end, int worker) {
    float* const sum = sums_.data() + width * static_cast<size_t>(worker);
    for (int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(i);
      const int64_t first = subgraph.offsets[row], last = subgraph.offsets[row + 1];
      std::fill_n(sum, width, 0.0f);
      for (int64_t e = first; e < std::min(last, inner); ++e) {
        const float* const own = mean_of(subgraph.sources[static_cast<size_t>(e)]) + width;
        AddAsFloat(DataType::kFloat32, reinterpret_cast<const std::byte*>(own), dense.width, sum);
      }
      for (int64_t e = std::max(first, inner); e < last; ++e) {
        if (e + kAhead < edges) PrefetchRow(dense, last_neighbor(e + kAhead));
        if (const std::byte* const found = FindRow(dense, last_neighbor(e))) {
          AddAsFloat(dense.type, found, dense.width, sum, dense.scales.data());
        } else {
          damaged = true;
        }
      }
      if (last > first + 1) {
        const float scale = 1.0f / static_cast<float>(last - first);
        for (size_t c = 0; c < width; ++c) sum[c] *= scale;
      }
      CopyFloats(reinterpret_cast<const std::byte*>(sum), dense.width, mean_of(i), past_caches);
    }
    FinishStores();
  });
  return damaged ? Damage({dense.bytes.status()}) : absl::OkStatus();
}

absl::Status FeatureGather::Sparse(std::span<const NodeId> nodes, const SegmentBounds& real,
                                   const SegmentBounds& padded, std::span<int64_t> row_begins,
                                   std::span<int64_t> columns, std::span<float> values) {
  const auto& sparse = std::get<SparseFeatures>(features_);
  const uint32_t* const stored = sparse.columns.data();
  const auto width = static_cast<uint64_t>(sparse.width);
  std::atomic<bool> damaged{false};
  ParallelFor(threads_, static_cast<int64_t>(nodes.size()), kPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        const Extent& ahead = extents_[static_cast<size_t>(i + kAhead)];
        PrefetchBegin(stored + ahead.begin, ahead.size * sizeof(uint32_t));
        if (!values.empty()) PrefetchBegin(sparse.values.data() + ahead.begin, ahead.size * sizeof(float));
      }
      const Extent& extent = extents_[static_cast<size_t>(i)];
      row_begins[static_cast<size_t>(MoveRow(i, real, padded))] = extent.to;
      const bool touched = sparse.columns.Touch(extent.begin, extent.begin + extent.size) &&
                           (values.empty() || sparse.values.Touch(extent.begin, extent.begin + extent.size));
      if (!touched) damaged = true;
      for (uint64_t e = 0; e < extent.size; ++e) {
        const uint64_t column = touched ? stored[extent.begin + e] : 0;
        const size_t at = static_cast<size_t>(extent.to) + e;
        if (column >= width) damaged = true;
        columns[at] = column < width ? static_cast<int64_t>(column) : 0;
        if (!values.empty()) values[at] = touched ? sparse.values[extent.begin + e] : 0;
      }
    }
  });
  return damaged ? Damage({sparse.columns.status(), sparse.values.status()}) : absl::OkStatus();
}

}  // namespace permafrost::data
