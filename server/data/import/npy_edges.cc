#include "data/import/npy_edges.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kAtOnce = uint64_t{1} << 16;

absl::StatusOr<NpyArray> OpenBeside(const SourceFile& file, uint64_t edges, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  if (shape.empty() || shape[0] != edges || array.header().elements() != edges) {
    return array.ShapeError(absl::StrCat("[", edges, "], one an edge"));
  }
  return array;
}

}  // namespace

template <class Record>
absl::StatusOr<NpyEdgeSource<Record>> NpyEdgeSource<Record>::Open(const NpyEdgeFiles& files, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray index, NpyArray::Open(files.index, /*member=*/"", monitor));
  const std::vector<uint64_t> shape = index.header().shape;
  const bool rows = shape.size() == 2 && shape[0] == 2;  // [2, 2] is taken as PyG means it
  if (shape.size() != 2 || (shape[0] != 2 && shape[1] != 2)) return index.ShapeError("[2, edges] or [edges, 2]");
  NpyEdgeSource source(std::move(index), files.max_id, files.why);
  source.edges_ = rows ? shape[1] : shape[0];
  if (rows) {
    PF_ASSIGN_OR_RETURN(source.targets_, NpyArray::Open(files.index, /*member=*/"", monitor));
    PF_RETURN_IF_ERROR(source.targets_->Skip(source.edges_));
  }
  if (files.weights) {
    PF_ASSIGN_OR_RETURN(source.weights_, OpenBeside(*files.weights, source.edges_, monitor));
  }
  if (files.times) {
    PF_ASSIGN_OR_RETURN(source.times_, OpenBeside(*files.times, source.edges_, monitor));
  }
  return source;
}

template <class Record>
absl::Status NpyEdgeSource<Record>::ReadEnds(size_t count) {
  ends_.resize(2 * count);
  const std::span<int64_t> ends(ends_);
  const auto check = [this](const NpyArray& array, std::span<const int64_t> ids) {
    const auto bad =
        std::ranges::find_if(ids, [this](int64_t id) { return id < 0 || static_cast<uint64_t>(id) > max_id_; });
    if (bad == ids.end()) return absl::OkStatus();
    return array.ElementError(array.position() - static_cast<uint64_t>(ids.end() - bad),
                              absl::StrCat(*bad, " is outside 0..", max_id_, why_));
  };
  if (!targets_) {
    PF_RETURN_IF_ERROR(sources_.ReadIntegers(ends));
    return check(sources_, ends);
  }
  PF_RETURN_IF_ERROR(sources_.ReadIntegers(ends.first(count)));
  PF_RETURN_IF_ERROR(check(sources_, ends.first(count)));
  PF_RETURN_IF_ERROR(targets_->ReadIntegers(ends.subspan(count)));
  return check(*targets_, ends.subspan(count));
}

template <class Record>
absl::StatusOr<bool> NpyEdgeSource<Record>::Next(std::vector<Record>& edges) {
  edges.clear();
  const auto count = static_cast<size_t>(std::min(kAtOnce, edges_ - given_));
  if (count == 0) {
    for (auto* array : {&targets_, &weights_, &times_}) {
      if (*array) PF_RETURN_IF_ERROR((*array)->ExpectEnd());
    }
    if (!targets_) PF_RETURN_IF_ERROR(sources_.ExpectEnd());
    return false;
  }
  PF_RETURN_IF_ERROR(ReadEnds(count));
  edges.resize(count);
  for (size_t e = 0; e < count; ++e) {
    const int64_t from = targets_ ? ends_[e] : ends_[2 * e], to = targets_ ? ends_[count + e] : ends_[2 * e + 1];
    edges[e].key = MakeEdgeKey(static_cast<NodeId>(to), static_cast<NodeId>(from));
  }
  if constexpr (Record::kHasWeight) {
    if (weights_) {
      weight_buffer_.resize(count);
      const uint64_t begin = weights_->position();
      PF_RETURN_IF_ERROR(weights_->ReadFloats(weight_buffer_));
      for (size_t e = 0; e < count; ++e) {
        if (const auto fault = FaultOfWeight(weight_buffer_[e])) return weights_->ElementError(begin + e, *fault);
        edges[e].weight = weight_buffer_[e];
      }
    }
  }
  if constexpr (Record::kHasAll) {
    if (times_) {
      time_buffer_.resize(count);
      PF_RETURN_IF_ERROR(times_->ReadIntegers(time_buffer_));
      for (size_t e = 0; e < count; ++e) edges[e].timestamp = time_buffer_[e];
    }
    for (size_t e = 0; e < count; ++e) edges[e].row = given_ + e;
  }
  given_ += count;
  return true;
}

template <class Record>
absl::StatusOr<bool> MatrixEdgeSource<Record>::Next(std::vector<Record>& edges) {
  edges.clear();
  while (edges.empty()) {
    PF_ASSIGN_OR_RETURN(const bool more, matrix_.Next(entries_));
    if (!more) return false;
    for (const MatrixEntry& entry : entries_) {
      if (entry.value == 0) continue;
      if (const auto fault = FaultOfWeight(entry.value)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name_, ": entry (", entry.row, ", ", entry.column, "): weight: ", *fault));
      }
      Record edge;
      edge.key = MakeEdgeKey(entry.column, entry.row);
      if constexpr (Record::kHasWeight) edge.weight = entry.value;
      edges.push_back(edge);
    }
  }
  return true;
}

template class NpyEdgeSource<PlainEdge>;
template class NpyEdgeSource<WeightedEdge>;
template class NpyEdgeSource<FullEdge>;
template class MatrixEdgeSource<PlainEdge>;
template class MatrixEdgeSource<WeightedEdge>;
template class MatrixEdgeSource<FullEdge>;

}  // namespace permafrost::data
