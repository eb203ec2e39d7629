#include "nn/ops/edge_region_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "base/hash.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr int64_t kMostEdges = std::numeric_limits<int32_t>::max();

// The plans of the regions that were called last, by the content of their codes. Threads: any.
class RegionPlans {
 public:
  static RegionPlans& Instance() {
    static RegionPlans* const plans = new RegionPlans;
    return *plans;
  }

  std::shared_ptr<const RegionPlan> Get(at::IntArrayRef code, at::ArrayRef<double> numbers) {
    const uint64_t hash = Hash64(code.data(), code.size() * sizeof(int64_t));
    {
      const std::lock_guard lock(mutex_);
      for (const Entry& e : entries_) {
        // By their bytes: a number may be NaN.
        if (e.hash == hash && e.code.size() == code.size() && e.numbers.size() == numbers.size() &&
            std::memcmp(e.code.data(), code.data(), code.size() * sizeof(int64_t)) == 0 &&
            (numbers.empty() || std::memcmp(e.numbers.data(), numbers.data(), numbers.size() * sizeof(double)) == 0)) {
          return e.plan;
        }
      }
    }
    auto region = DecodeRegion({code.data(), code.size()}, {numbers.data(), numbers.size()});
    TORCH_CHECK(region.ok(), "edge_region: ", std::string(region.status().message()));
    auto plan = std::make_shared<const RegionPlan>(*std::move(region));
    const std::lock_guard lock(mutex_);
    if (entries_.size() < kMost) entries_.emplace_back();
    Entry& e = entries_[next_++ % kMost];
    e = {.hash = hash, .code = code.vec(), .numbers = numbers.vec(), .plan = plan};
    return plan;
  }

 private:
  static constexpr size_t kMost = 256;
  struct Entry {
    uint64_t hash = 0;  // of the code
    std::vector<int64_t> code;
    std::vector<double> numbers;
    std::shared_ptr<const RegionPlan> plan;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

// Offsets [rows + 1] that rise from 0 to the number of places, and places that are edges.
void CheckSegments(const Tensor& offsets, const Tensor& places, int64_t edges, const char* which) {
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kInt && offsets.is_cpu() &&
                  places.dim() == 1 && places.scalar_type() == at::kInt && places.is_cpu() && places.numel() == edges,
              "edge_region: ", which, ": offsets and places must be [rows + 1] and [", edges, "] int32, not ",
              offsets.toString(), offsets.sizes(), " and ", places.toString(), places.sizes());
  const int32_t* const o = offsets.const_data_ptr<int32_t>();
  const int64_t rows = offsets.numel() - 1;
  TORCH_CHECK(o[0] == 0 && o[rows] == edges && std::is_sorted(o, o + rows + 1), "edge_region: ", which,
              ": offsets do not rise from 0 to ", edges);
  const int32_t* const p = places.const_data_ptr<int32_t>();
  for (int64_t e = 0; e < edges; ++e) {
    TORCH_CHECK(p[e] >= 0 && p[e] < edges, "edge_region: ", which, ": place ", p[e], " is not in [0, ", edges, ")");
  }
}

// The first value that is outside of [0, rows); null: all are inside.
const int64_t* FirstOutside(const int64_t* values, int64_t count, int64_t rows) {
  bool any = false;
  for (int64_t e = 0; e < count; ++e) any |= static_cast<uint64_t>(values[e]) >= static_cast<uint64_t>(rows);
  if (!any) return nullptr;
  return std::find_if(values, values + count, [&](int64_t value) { return value < 0 || value >= rows; });
}

void CheckIndex(const Tensor& index, int64_t rows, const char* which) {
  const int64_t* const outside = FirstOutside(index.const_data_ptr<int64_t>(), index.numel(), rows);
  TORCH_CHECK_INDEX(outside == nullptr, which, ": index ", *outside, " is not in [0, ", rows, ")");
}

Tensor DefinedOr(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : Tensor();
}

}  // namespace

std::tuple<Tensor, Tensor> SegmentsOfCpu(const Tensor& index_in, int64_t rows) {
  TORCH_CHECK(index_in.dim() == 1 && index_in.scalar_type() == at::kLong, "segments_of: index must be [E] int64, not ",
              index_in.toString(), index_in.sizes());
  const int64_t edges = index_in.numel();
  TORCH_CHECK(rows >= 0 && rows < kMostEdges && edges < kMostEdges, "segments_of: ", rows, " rows and ", edges,
              " edges; below ", kMostEdges, " are taken");
  const Tensor index = index_in.contiguous();
  CheckIndex(index, rows, "segments_of");
  const int64_t* const row = index.const_data_ptr<int64_t>();
  Tensor offsets = at::zeros({rows + 1}, at::kInt), places = at::empty({edges}, at::kInt);
  int32_t* const begins = offsets.mutable_data_ptr<int32_t>();
  int32_t* const place = places.mutable_data_ptr<int32_t>();
  for (int64_t e = 0; e < edges; ++e) ++begins[row[e]];
  // Counts become the beginnings of rows. Placing the edges moves each to its row's end, where the next row begins.
  int32_t before = 0;
  for (int64_t r = 0; r <= rows; ++r) before += std::exchange(begins[r], before);
  for (int64_t e = 0; e < edges; ++e) place[begins[row[e]]++] = static_cast<int32_t>(e);
  std::copy_backward(begins, begins + rows, begins + rows + 1);
  begins[0] = 0;
  return {offsets, places};
}

RegionCall::RegionCall(const RegionArguments& a)
    : plan_(RegionPlans::Instance().Get(a.code, a.numbers)),
      offsets_(a.offsets.contiguous()),
      places_(a.places.contiguous()),
      has_edges_(offsets_.numel() > 0),
      targets_(offsets_.numel() - 1),
      edges_(places_.numel()) {
  TORCH_CHECK(std::ssize(a.inputs) == region().num_inputs && std::ssize(a.indices) == region().num_indices &&
                  a.index_offsets.size() == a.indices.size() && a.index_places.size() == a.indices.size(),
              "edge_region: the region has ", region().num_inputs, " inputs and ", region().num_indices,
              " indices; given are ", a.inputs.size(), ", ", a.indices.size(), " and segments of ",
              a.index_offsets.size(), " and ", a.index_places.size());
  TORCH_CHECK(!a.inputs.empty(), "edge_region: without inputs there is no type of values");
  if (has_edges_) {
    CheckSegments(offsets_, places_, edges_, "targets");
  } else {
    const int32_t first = FirstTargetInput(region());
    TORCH_CHECK(HasNoEdges(region()) && edges_ == 0 && first != -1 && a.inputs[static_cast<size_t>(first)].dim() > 0,
                "row_region: no step may use edges, and the first target input needs a dimension of rows");
    targets_ = a.inputs[static_cast<size_t>(first)].size(0);
  }
  for (const Tensor& t : a.inputs) {
    TORCH_CHECK((t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble) && t.is_cpu() &&
                    t.scalar_type() == a.inputs[0].scalar_type(),
                "edge_region: inputs must be all float32 or all float64, not ", t.toString());
    const bool by_row = plan_->may_lie_apart[inputs_.size()] && t.dim() == 2 && (t.size(1) == 1 || t.stride(1) == 1);
    inputs_.push_back(by_row ? t : t.contiguous());
  }
  for (size_t k = 0; k < a.indices.size(); ++k) {
    const Tensor& t = a.indices[k];
    TORCH_CHECK(t.dim() == 1 && t.scalar_type() == at::kLong && t.is_cpu() && t.numel() == edges_,
                "edge_region: index ", k, " must be [", edges_, "] int64, not ", t.toString(), t.sizes());
    indices_.push_back(t.contiguous());
    index_offsets_.push_back(DefinedOr(a.index_offsets.get(k)));
    index_places_.push_back(DefinedOr(a.index_places.get(k)));
    TORCH_CHECK(index_offsets_[k].defined() == index_places_[k].defined(), "edge_region: index ", k,
                " has offsets without places, or places without offsets");
  }
  std::vector<int64_t> fewest(indices_.size(), std::numeric_limits<int64_t>::max());
  for (const int32_t reader : plan_->reader) {
    if (reader == -1) continue;
    const RegionStep& step = region().steps[static_cast<size_t>(reader)];
    CheckInput(step);
    if (step.op != RegionOp::kGather) continue;
    int64_t& rows = fewest[static_cast<size_t>(step.index)];
    rows = std::min(rows, input(static_cast<size_t>(step.input)).size(0));
  }
  for (size_t k = 0; k < indices_.size(); ++k) CheckIndex(indices_[k], fewest[k], "edge_region");
}

void RegionCall::CheckInput(const RegionStep& step) const {
  const Tensor& t = input(static_cast<size_t>(step.input));
  const bool has_rows = step.op != RegionOp::kShared;
  const int64_t rows = !has_rows ? 1 : t.dim() == 0 ? -1 : t.size(0);
  const bool fits = step.op == RegionOp::kGather || rows == this->rows(step.level);
  TORCH_CHECK(fits && rows >= 0 && t.numel() == rows * step.width, "edge_region: input ", step.input, " (",
              kRegionOpNames.Name(step.op), ") of ", targets_, " targets and ", edges_, " edges must have width ",
              step.width, ", not ", t.sizes());
}

std::tuple<Tensor, Tensor> RegionCall::IndexSegments(size_t k, int64_t rows) const {
  if (!HasSegments(k)) return SegmentsOfCpu(indices_[k], rows);
  CheckSegments(index_offsets_[k], index_places_[k], edges_, "index");
  TORCH_CHECK(index_offsets_[k].numel() > rows, "edge_region: index ", k, " has offsets of ",
              index_offsets_[k].numel() - 1, " rows; a table has ", rows);
  return {index_offsets_[k], index_places_[k]};
}

}  // namespace permafrost::nn
