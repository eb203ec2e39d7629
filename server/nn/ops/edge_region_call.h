// The arguments of a call of permafrost::edge_region, checked, as the kernels read them.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "nn/kernels/edge_region_plan.h"
#include "nn/kernels/edge_region_run.h"

namespace permafrost::nn {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

// The arguments that edge_region and edge_region_backward share, in the schema's order.
struct RegionArguments {
  at::TensorList inputs;
  const at::Tensor &offsets, &places;
  at::TensorList indices;
  const OptionalTensors &index_offsets, &index_places;
  at::IntArrayRef code;
  at::ArrayRef<double> numbers;
};

// Threads: one an object; the plans of past calls are shared.
// Copies tensors that are not contiguous. A two-dimensional input whose rows may have gaps between them
// (RegionPlan::may_lie_apart) is not copied if the values of each row are adjacent. Borrows no argument. If offsets has
// no elements, the region has no edges, and the first target step's input has a row for each target.
class RegionCall {
 public:
  // Errors: c10::Error for a code, a type, a shape or an index that does not fit.
  explicit RegionCall(const RegionArguments& arguments);

  const RegionPlan& plan() const { return *plan_; }
  const EdgeRegion& region() const { return plan_->region; }
  int64_t targets() const { return targets_; }
  int64_t edges() const { return edges_; }
  // Rows of a step of that level.
  int64_t rows(RegionLevel level) const {
    return level == RegionLevel::kEdge ? edges_ : level == RegionLevel::kTarget ? targets_ : 1;
  }
  const at::Tensor& input(size_t i) const { return inputs_[i]; }
  const at::Tensor& index(size_t k) const { return indices_[k]; }
  // Returns the given segments of index k, checked against `rows`, or makes them.
  std::tuple<at::Tensor, at::Tensor> IndexSegments(size_t k, int64_t rows) const;
  bool HasSegments(size_t k) const { return index_offsets_[k].defined(); }

  // Calls body(RegionInputs<T>) with the arrays that the kernels read.
  template <class T, class Body>
  void WithInputs(const Body& body) const {
    std::vector<const T*> inputs;
    std::vector<int64_t> strides;
    std::vector<const int64_t*> indices;
    for (const at::Tensor& t : inputs_) {
      inputs.push_back(t.const_data_ptr<T>());
      const int64_t rows = t.dim() == 0 ? 1 : std::max<int64_t>(1, t.size(0));
      strides.push_back(t.dim() == 2 ? t.stride(0) : t.numel() / rows);
    }
    for (const at::Tensor& t : indices_) indices.push_back(t.const_data_ptr<int64_t>());
    body(RegionInputs<T>{.inputs = inputs,
                         .strides = strides,
                         .indices = indices,
                         .offsets = has_edges_ ? offsets_.const_data_ptr<int32_t>() : nullptr,
                         .places = has_edges_ ? places_.const_data_ptr<int32_t>() : nullptr});
  }

 private:
  void CheckInput(const RegionStep& step) const;

  std::shared_ptr<const RegionPlan> plan_;
  std::vector<at::Tensor> inputs_, indices_, index_offsets_, index_places_;
  at::Tensor offsets_, places_;
  bool has_edges_ = true;
  int64_t targets_ = 0, edges_ = 0;
};

// permafrost::segments_of on the CPU.
std::tuple<at::Tensor, at::Tensor> SegmentsOfCpu(const at::Tensor& index, int64_t rows);

}  // namespace permafrost::nn
