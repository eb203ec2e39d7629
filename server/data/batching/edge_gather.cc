#include "data/batching/edge_gather.h"

#include <atomic>

#include "base/parallel.h"

namespace permafrost::data {
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
  // Ids are read to know which rows.
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

}  // namespace permafrost::data
