#include "data/store/edge_rows.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "data/store/float_conversion.h"

namespace permafrost::data {
namespace {

template <class T>
int64_t LoadInteger(const std::byte* bytes, int64_t column) {
  T value;
  std::memcpy(&value, bytes + static_cast<size_t>(column) * sizeof(T), sizeof(T));
  return static_cast<int64_t>(value);
}

template <class T>
absl::Status ReadInOrder(const EdgeRows& rows, uint64_t begin, uint64_t end, T* out) {
  for (uint64_t place = begin; place < end; ++place, out += rows.width()) {
    if (!rows.Read(place, out)) return rows.Damage();
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CategoryAt(DataType type, const std::byte* row, int64_t column) {
  switch (type) {
    case DataType::kInt32:
      return LoadInteger<int32_t>(row, column);
    case DataType::kUint8:
      return LoadInteger<uint8_t>(row, column);
    default:
      return LoadInteger<int64_t>(row, column);
  }
}

EdgeRows::EdgeRows(const Graph& graph, EdgeInputs inputs) : view_(graph.view()), inputs_(inputs) {
  if (inputs == EdgeInputs::kNone) return;
  width_ = inputs == EdgeInputs::kWeights ? 1 : view_.edge_features.width;
  categorical_ = inputs == EdgeInputs::kFeatures && IsCategorical(view_.edge_features.type);
  if (!categorical_) return;
  maps_ = view_.edge_categories;
  const std::vector<double>& most = graph.summary().edge_features.max;
  // A table without rows has no maxima.
  for (int64_t c = 0; c < width_; ++c) {
    largest_.push_back(most.empty() ? 0 : static_cast<int64_t>(most[static_cast<size_t>(c)]));
  }
}

bool EdgeRows::FindRow(uint64_t place, uint64_t& row) const {
  row = place;
  if (place >= view_.in.neighbors.size()) return false;
  const Column<uint64_t>& ids = view_.in.edge_ids;
  if (ids.empty()) return true;
  if (place >= ids.size() || !ids.Touch(place, place + 1)) return false;
  row = ids[place];
  return true;
}

const std::byte* EdgeRows::FindBytes(uint64_t place) const {
  uint64_t row = 0;
  if (!FindRow(place, row)) return nullptr;
  const DenseFeatures& features = view_.edge_features;
  const uint64_t size = features.bytes.size(), row_bytes = features.row_bytes();
  if (row > size / std::max<uint64_t>(1, row_bytes)) return nullptr;
  const uint64_t begin = features.OffsetOf(row), end = begin + row_bytes;
  return end <= size && features.bytes.Touch(begin, end) ? features.bytes.data() + begin : nullptr;
}

bool EdgeRows::Read(uint64_t place, float* out) const {
  if (inputs_ == EdgeInputs::kWeights) {
    const Column<float>& weights = view_.in.weights;
    const bool there = place < weights.size() && weights.Touch(place, place + 1);
    *out = there ? weights[place] : 0;
    return there;
  }
  const std::byte* const bytes = FindBytes(place);
  if (bytes == nullptr) {
    std::fill_n(out, width_, 0.0F);
    return false;
  }
  ToFloat(view_.edge_features.type, bytes, width_, out, view_.edge_features.scales.data());
  return true;
}

bool EdgeRows::Read(uint64_t place, int64_t* out) const {
  const std::byte* const bytes = FindBytes(place);
  bool known = bytes != nullptr;
  for (int64_t c = 0; c < width_ && known; ++c) {
    out[c] = CategoryAt(view_.edge_features.type, bytes, c);
    if (maps_ != nullptr) out[c] = (*maps_)[static_cast<size_t>(c)].To(out[c]);
    known = out[c] >= 0 && out[c] <= largest_[static_cast<size_t>(c)];
  }
  if (!known) std::fill_n(out, width_, int64_t{0});
  return known;
}

absl::Status EdgeRows::Damage() const {
  PF_RETURN_IF_ERROR(view_.in.weights.status());
  PF_RETURN_IF_ERROR(view_.in.edge_ids.status());
  PF_RETURN_IF_ERROR(view_.edge_features.bytes.status());
  return absl::DataLossError("the graph's edge features: what was read cannot be: the file changed while in use");
}

std::span<const std::byte> EdgeRows::ReadsOfId(uint64_t place) const {
  if (place >= view_.in.neighbors.size()) return {};
  if (inputs_ == EdgeInputs::kWeights) return view_.in.weights.Reads(place, place + 1);
  return view_.in.edge_ids.empty() ? std::span<const std::byte>() : view_.in.edge_ids.Reads(place, place + 1);
}

std::span<const std::byte> EdgeRows::ReadsOfRow(uint64_t place) const {
  uint64_t row = 0;
  if (inputs_ != EdgeInputs::kFeatures || !FindRow(place, row)) return {};
  const DenseFeatures& features = view_.edge_features;
  const uint64_t row_bytes = features.row_bytes();
  if (row >= features.bytes.size() / std::max<uint64_t>(1, row_bytes)) return {};
  return features.bytes.Reads(features.OffsetOf(row), features.OffsetOf(row) + row_bytes);
}

absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, float* out) {
  return ReadInOrder(rows, begin, end, out);
}
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, int64_t* out) {
  return ReadInOrder(rows, begin, end, out);
}

uint64_t EdgeTableBytes(const GraphSummary& graph, EdgeInputs inputs) {
  if (inputs != EdgeInputs::kFeatures) return 0;
  // An edge and its added inverse share a row, so the table has edges / 2 rows.
  const auto rows = static_cast<uint64_t>(graph.inverse_edges_added ? graph.edges / 2 : graph.edges);
  return rows * static_cast<uint64_t>(graph.edge_features.width) * ElementBytes(graph.edge_features.type);
}

uint64_t EdgeRowBytes(const GraphSummary& graph, EdgeInputs inputs) {
  if (inputs == EdgeInputs::kNone) return 0;
  if (inputs == EdgeInputs::kWeights) return sizeof(float);
  const uint64_t value = IsCategorical(graph.edge_features.type) ? sizeof(int64_t) : sizeof(float);
  return value * static_cast<uint64_t>(graph.edge_features.width);
}

}  // namespace permafrost::data
