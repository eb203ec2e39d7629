#include "train/tasks/feature_table.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "nn/ops/segment_ops.h"
#include "train/tasks/layer_wise.h"

namespace permafrost::train {
namespace {

using data::NodeId;

// The size in bytes of the pieces in which a table is read. If the table has two parts, memory holds a piece twice.
constexpr int64_t kPieceBytes = 64 << 20;

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// One part of a table. It is filled from its first row on.
struct Part {
  at::Tensor to;
  int64_t filled = 0;
  void Append(const at::Tensor& rows) {
    if (rows.size(0) == 0) return;
    to.narrow(0, filled, rows.size(0)).copy_(rows);
    filled += rows.size(0);
  }
};

// The parts of a table while it is filled. Rows keep their order within a part.
class Writer {
 public:
  // `on_device` says for each row whether it lies on the device. It is empty if all rows lie in one part.
  Writer(Part device, Part host, std::vector<bool> on_device)
      : device_(std::move(device)), host_(std::move(host)), on_device_(std::move(on_device)) {}

  // Appends the next rows of the table.
  void Append(const at::Tensor& rows) {
    if (on_device_.empty()) return (device_.to.defined() ? device_ : host_).Append(rows);
    std::vector<int64_t> of_device, of_host;
    of_device.reserve(static_cast<size_t>(rows.size(0)));
    of_host.reserve(static_cast<size_t>(rows.size(0)));
    for (int64_t i = 0; i < rows.size(0); ++i)
      (on_device_[static_cast<size_t>(next_ + i)] ? of_device : of_host).push_back(i);
    device_.Append(rows.index_select(0, at::tensor(of_device, at::kLong)));
    host_.Append(rows.index_select(0, at::tensor(of_host, at::kLong)));
    next_ += rows.size(0);
  }

 private:
  Part device_, host_;
  const std::vector<bool> on_device_;
  int64_t next_ = 0;
};

// Returns the place of each row in an order in which the rows on the device come first and the other rows follow.
// Within each of these two groups, rows keep their order.
at::Tensor PlacesOf(const std::vector<bool>& on_device, int64_t device_rows) {
  at::Tensor places = at::empty({std::ssize(on_device)}, at::kInt);
  auto* const to = places.mutable_data_ptr<int32_t>();
  auto device = int32_t{0}, host = static_cast<int32_t>(device_rows);
  for (size_t row = 0; row < on_device.size(); ++row) to[row] = on_device[row] ? device++ : host++;
  return places;
}

at::Tensor EmptyOn(c10::Device device, int64_t rows, int64_t width) {
  return at::empty({rows, width}, at::TensorOptions().dtype(at::kFloat).device(device));
}

}  // namespace

FeatureSplit SplitFeatures(int64_t rows, int64_t row_bytes, const FeatureMemory& memory) {
  const auto count = static_cast<uint64_t>(rows), size = static_cast<uint64_t>(row_bytes);
  if (count * size <= memory.device) return {.device = rows};
  const uint64_t beside = memory.gathering + count * sizeof(int32_t);
  // Places are 32 bits wide.
  const bool has_places = rows <= std::numeric_limits<int32_t>::max();
  const uint64_t on_device = has_places && memory.device > beside ? (memory.device - beside) / size : 0;
  if ((count - on_device) * size > memory.host) return {};
  return {.device = static_cast<int64_t>(on_device), .host = static_cast<int64_t>(count - on_device)};
}

uint64_t PinnableBytes(uint64_t process, uint64_t taken) {
  return std::min(process / 2, process - std::min(process, taken));
}

std::vector<bool> MostWanted(std::span<const float> wanted, int64_t count) {
  std::vector<NodeId> rows(wanted.size());
  std::iota(rows.begin(), rows.end(), NodeId{0});
  std::nth_element(rows.begin(), rows.begin() + count, rows.end(),
                   [&](NodeId a, NodeId b) { return wanted[a] != wanted[b] ? wanted[a] > wanted[b] : a < b; });
  std::vector<bool> among(wanted.size());
  std::for_each(rows.begin(), rows.begin() + count, [&](NodeId row) { among[row] = true; });
  return among;
}

at::Tensor GatherRows(const FeatureTable& table, const at::Tensor& numbers) {
  if (!table.rest.defined()) return table.rows.index_select(0, numbers);
  // Shapes must not depend on data. So one row is gathered from each part for every row of the block: an arbitrary
  // one if the wanted row lies in the other part.
  const int64_t on_device = table.rows.size(0);
  const at::Tensor places = table.places.index_select(0, numbers);
  const at::Tensor near = table.rows.index_select(0, places.clamp_max(on_device - 1));
  const at::Tensor far = table.rest.index_select(0, places.sub(on_device).clamp_min(0));
  return at::where(places.lt(on_device).unsqueeze(1), near, far);
}

at::Tensor GatherMeans(const FeatureTable& table, const at::Tensor& numbers, const at::Tensor& offsets,
                       const at::Tensor& neighbors) {
  return at::cat({nn::SegmentMean(table.rows, offsets, neighbors.to(at::kLong)), GatherRows(table, numbers)}, 1);
}

int64_t FeatureTableRows(const data::GraphSummary& graph) { return graph.nodes + 1; }

int64_t FeatureRowBytes(const data::GraphSummary& graph) {
  return static_cast<int64_t>(sizeof(float)) * graph.node_features.width;
}

std::string DescribeFeatures(const FeatureSplit& split, int64_t row_bytes) {
  const double device = Megabytes(split.device * row_bytes), host = Megabytes(split.host * row_bytes);
  if (split.rows() == 0) return "";
  if (split.host == 0) return absl::StrFormat("features: %.1f MB lie on the device, which gathers them", device);
  if (split.device == 0) {
    return absl::StrFormat("features: %.1f MB lie in pinned memory of the host, and the device gathers them", host);
  }
  return absl::StrFormat(
      "features: the %d rows wanted most, %.1f MB, lie on the device, and %.1f MB in pinned memory of the host; the "
      "device gathers them",
      split.device, device, host);
}

absl::StatusOr<FeatureTable> ReadFeatureTable(const data::Graph& graph, const FeatureTableOptions& options,
                                              const std::function<bool()>& keep_going) {
  const data::GraphSummary& summary = graph.summary();
  const int64_t nodes = summary.nodes, width = summary.node_features.width;
  FeatureTable table;
  std::vector<bool> on_device;
  device::PinnedRows pinned;
  try {
    if (options.split.device > 0) table.rows = EmptyOn(options.device, options.split.device, width);
    if (options.split.device > 0 && options.split.host > 0) {
      on_device = MostWanted(options.wanted, options.split.device - 1);
      // Every block is padded with the row of zeros, so that row lies on the device.
      on_device.push_back(true);
      table.places = PlacesOf(on_device, options.split.device).to(options.device);
    }
  } catch (const c10::OutOfMemoryError&) {
    return FeatureTable();
  }
  if (options.split.host > 0) {
    std::optional<device::PinnedRows> made = options.allocate_pinned(options.split.host, width);
    if (!made) return FeatureTable();
    pinned = *std::move(made);
    (table.rows.defined() ? table.rest : table.rows) = pinned.device;
  }
  const bool has_device_part = options.split.device > 0;
  Writer writer({.to = has_device_part ? table.rows : at::Tensor()}, {.to = pinned.host}, std::move(on_device));
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, FeatureRowBytes(summary)));
  for (int64_t begin = 0; begin < nodes; begin += piece) {
    if (!keep_going()) return absl::CancelledError("stopped while features were read");
    const int64_t end = std::min(begin + piece, nodes);
    PF_ASSIGN_OR_RETURN(const nn::LayerWiseModel::InputRows rows,
                        ReadFeatureRows(graph, static_cast<uint64_t>(begin), static_cast<uint64_t>(end)));
    writer.Append(rows.dense);
  }
  writer.Append(at::zeros({1, width}, at::kFloat));
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return table;
}

}  // namespace permafrost::train
