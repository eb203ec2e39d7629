#include "nn/ops/edge_region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "nn/kernels/edge_region_plan.h"
#include "nn/kernels/edge_region_rows.h"
#include "nn/kernels/edge_region_run.h"
#include "nn/kernels/edge_region_sources.h"
#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

// The plan for the gradient of a gathered input, by sums over the edges that read each row of that input.
struct SourcePlan {
  explicit SourcePlan(SourceGradient of)
      : targets(std::move(of.targets)),
        rows(std::move(of.rows)),
        target_inputs(std::move(of.target_inputs)),
        row_inputs(std::move(of.row_inputs)),
        row_indices(std::move(of.row_indices)) {}
  RegionPlan targets, rows;
  std::vector<RegionSource> target_inputs, row_inputs;
  std::vector<int32_t> row_indices;
};

// A request for gradients: the wanted inputs, the outputs with given gradients, and the inputs that are small tables.
// Gradients of small tables are not summed by row.
struct GradientQuery {
  std::vector<char> wanted, given, is_small;
  bool operator==(const GradientQuery&) const = default;
};

struct GradientPlan {
  GradientPlan(const RegionPlan& plan, const GradientQuery& query);
  // For each input, the plan that sums its gradient row by row. It is null if `by_tile` computes the gradient, or if
  // the gradient is not wanted.
  std::vector<std::unique_ptr<const SourcePlan>> by_source;
  std::vector<char> wanted_by_tile;
  std::optional<RegionGradientPlan> by_tile;  // nullopt if by_source covers all wanted inputs
};

GradientPlan::GradientPlan(const RegionPlan& plan, const GradientQuery& query)
    : by_source(query.wanted.size()), wanted_by_tile(query.wanted) {
  for (size_t i = 0; i < by_source.size(); ++i) {
    const int32_t reader = plan.reader[i];
    if (!query.wanted[i] || query.is_small[i] || reader == -1) continue;
    if (plan.region.steps[static_cast<size_t>(reader)].op != RegionOp::kGather) continue;
    std::optional<SourceGradient> gradient = GradientBySource(plan, static_cast<int32_t>(i), query.given);
    if (!gradient) continue;
    by_source[i] = std::make_unique<const SourcePlan>(*std::move(gradient));
    wanted_by_tile[i] = 0;
  }
  if (std::ranges::find(wanted_by_tile, 1) != wanted_by_tile.end()) by_tile.emplace(plan, wanted_by_tile, query.given);
}

// A region's plan, and the plans of its gradients. Threads: any.
class PlannedRegion {
 public:
  explicit PlannedRegion(EdgeRegion region) : plan_(std::move(region)) {}
  const RegionPlan& plan() const { return plan_; }
  std::shared_ptr<const GradientPlan> Gradient(GradientQuery query) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, gradient] : gradients_) {
      if (known == query) return gradient;
    }
    auto gradient = std::make_shared<const GradientPlan>(plan_, query);
    if (gradients_.size() == kMostGradients) gradients_.erase(gradients_.begin());
    gradients_.emplace_back(std::move(query), gradient);
    return gradient;
  }

 private:
  static constexpr size_t kMostGradients = 8;
  const RegionPlan plan_;
  std::mutex mutex_;
  std::vector<std::pair<GradientQuery, std::shared_ptr<const GradientPlan>>> gradients_;
};

// Caches the plans of the most recently called regions, keyed by the content of their codes. Threads: any.
class RegionPlans {
 public:
  static RegionPlans& Instance() {
    static RegionPlans* const plans = new RegionPlans;
    return *plans;
  }

  std::shared_ptr<PlannedRegion> Get(at::IntArrayRef code, at::ArrayRef<double> numbers) {
    const uint64_t hash = Hash64(code.data(), code.size() * sizeof(int64_t));
    {
      const std::lock_guard lock(mutex_);
      for (const Entry& e : entries_) {
        // Compares bytes, since a number may be NaN.
        if (e.hash == hash && e.code.size() == code.size() && e.numbers.size() == numbers.size() &&
            std::memcmp(e.code.data(), code.data(), code.size() * sizeof(int64_t)) == 0 &&
            (numbers.empty() || std::memcmp(e.numbers.data(), numbers.data(), numbers.size() * sizeof(double)) == 0)) {
          return e.plan;
        }
      }
    }
    auto region = DecodeRegion({code.data(), code.size()}, {numbers.data(), numbers.size()});
    TORCH_CHECK(region.ok(), "edge_region: ", std::string(region.status().message()));
    auto plan = std::make_shared<PlannedRegion>(*std::move(region));
    const std::lock_guard lock(mutex_);
    if (entries_.size() < kMost) entries_.emplace_back();
    Entry& e = entries_[next_++ % kMost];
    e = {.hash = hash, .code = code.vec(), .numbers = numbers.vec(), .plan = plan};
    return plan;
  }

 private:
  static constexpr size_t kMost = 256;
  struct Entry {
    uint64_t hash = 0;  // hash of the code
    std::vector<int64_t> code;
    std::vector<double> numbers;
    std::shared_ptr<PlannedRegion> plan;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

// Checks that offsets, [rows + 1], rise from 0 to the number of places, and that places are edge numbers.
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
  if (AreInRange(p, edges, static_cast<int32_t>(edges))) return;
  const int32_t* const outside = std::find_if(p, p + edges, [&](int32_t place) { return place < 0 || place >= edges; });
  TORCH_CHECK(false, "edge_region: ", which, ": place ", *outside, " is not in [0, ", edges, ")");
}

// Returns the first value outside [0, rows); null if there is none.
const int64_t* FirstOutside(const int64_t* values, int64_t count, int64_t rows) {
  if (AreInRange(values, count, rows)) return nullptr;
  return std::find_if(values, values + count, [&](int64_t value) { return value < 0 || value >= rows; });
}

void CheckIndex(const Tensor& index, int64_t rows, const char* which) {
  const int64_t* const outside = FirstOutside(index.const_data_ptr<int64_t>(), index.numel(), rows);
  TORCH_CHECK_INDEX(outside == nullptr, which, ": index ", *outside, " is not in [0, ", rows, ")");
}

Tensor DefinedOr(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : Tensor();
}

// Implements permafrost::segments_of on the CPU.
std::tuple<Tensor, Tensor> SegmentsOfCpu(const Tensor& index_in, int64_t rows) {
  TORCH_CHECK(index_in.dim() == 1 && index_in.scalar_type() == at::kLong, "segments_of: index must be [E] int64, not ",
              index_in.toString(), index_in.sizes());
  const int64_t edges = index_in.numel();
  CheckPlaces("segments_of", "rows", rows, edges);
  const Tensor index = index_in.contiguous();
  CheckIndex(index, rows, "segments_of");
  const int64_t* const row = index.const_data_ptr<int64_t>();
  Tensor offsets = at::empty({rows + 1}, at::kInt), places = at::empty({edges}, at::kInt);
  int32_t* const begins = offsets.mutable_data_ptr<int32_t>();
  int32_t* const place = places.mutable_data_ptr<int32_t>();
  MakeOffsets(row, edges, rows, begins);
  // Placing the edges moves each offset to its row's end, where the next row begins.
  for (int64_t e = 0; e < edges; ++e) place[begins[row[e]]++] = static_cast<int32_t>(e);
  EndsToBegins(rows, begins);
  return {offsets, places};
}

using OptionalTensors = c10::List<std::optional<Tensor>>;

// The arguments that edge_region and edge_region_backward share, in the schema's order.
struct RegionArguments {
  at::TensorList inputs;
  const Tensor &offsets, &places;
  at::TensorList indices;
  const OptionalTensors &index_offsets, &index_places;
  at::IntArrayRef code;
  at::ArrayRef<double> numbers;
};

// The checked arguments of one call. Threads: one thread per object; the plans of past calls are shared.
// A RegionCall copies tensors that are not contiguous. A two-dimensional input that is allowed gaps between its rows
// (RegionPlan::may_lie_apart) is not copied if the values of each row are adjacent. A RegionCall holds no reference
// to an argument. If `offsets` has no elements, the region has no edges, and the input of the first target step has
// one row for each target.
class RegionCall {
 public:
  // Errors: c10::Error for a code, a type, a shape or an index that does not fit.
  explicit RegionCall(const RegionArguments& arguments);

  const RegionPlan& plan() const { return planned_->plan(); }
  const EdgeRegion& region() const { return plan().region; }
  std::shared_ptr<const GradientPlan> Gradient(GradientQuery query) const {
    return planned_->Gradient(std::move(query));
  }
  int64_t targets() const { return targets_; }
  int64_t edges() const { return edges_; }
  // Returns the number of rows of a step of the given level.
  int64_t rows(RegionLevel level) const {
    return level == RegionLevel::kEdge ? edges_ : level == RegionLevel::kTarget ? targets_ : 1;
  }
  const Tensor& input(size_t i) const { return inputs_[i]; }
  const Tensor& index(size_t k) const { return indices_[k]; }
  // Returns the target of each edge, [E] int64.
  Tensor TargetOfEdges() const;
  const Tensor& offsets() const { return offsets_; }
  const Tensor& places() const { return places_; }
  // Returns the segments of index k. Checks them against `rows` if the caller gave them, and makes them otherwise.
  std::tuple<Tensor, Tensor> IndexSegments(size_t k, int64_t rows) const;
  bool HasSegments(size_t k) const { return index_offsets_[k].defined(); }

  // Calls body(RegionInputs<T>) with the arrays that the kernels read.
  template <class T, class Body>
  void WithInputs(const Body& body) const {
    std::vector<const T*> inputs;
    std::vector<int64_t> strides;
    std::vector<const int64_t*> indices;
    indices.reserve(indices_.size());
    for (const Tensor& t : inputs_) {
      inputs.push_back(t.const_data_ptr<T>());
      const int64_t rows = t.dim() == 0 ? 1 : std::max<int64_t>(1, t.size(0));
      strides.push_back(t.dim() == 2 ? t.stride(0) : t.numel() / rows);
    }
    for (const Tensor& t : indices_) indices.push_back(t.const_data_ptr<int64_t>());
    body(RegionInputs<T>{.inputs = inputs,
                         .strides = strides,
                         .indices = indices,
                         .offsets = has_edges_ ? offsets_.const_data_ptr<int32_t>() : nullptr,
                         .places = has_edges_ ? places_.const_data_ptr<int32_t>() : nullptr});
  }

 private:
  void CheckInput(const RegionStep& step) const;

  std::shared_ptr<PlannedRegion> planned_;
  std::vector<Tensor> inputs_, indices_, index_offsets_, index_places_;
  Tensor offsets_, places_;
  bool has_edges_ = true;
  int64_t targets_ = 0, edges_ = 0;
};

RegionCall::RegionCall(const RegionArguments& a)
    : planned_(RegionPlans::Instance().Get(a.code, a.numbers)),
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
    const bool by_row = plan().may_lie_apart[inputs_.size()] && t.dim() == 2 && (t.size(1) == 1 || t.stride(1) == 1);
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
  for (const int32_t reader : plan().reader) {
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

Tensor RegionCall::TargetOfEdges() const {
  // Zeros, because places need not name every edge.
  Tensor targets = at::zeros({edges_}, at::kLong);
  int64_t* const target = targets.mutable_data_ptr<int64_t>();
  const int32_t *const offsets = Read<int32_t>(offsets_), *const places = Read<int32_t>(places_);
  for (int64_t t = 0; t < targets_; ++t) {
    for (int32_t p = offsets[t]; p < offsets[t + 1]; ++p) target[places[p]] = t;
  }
  return targets;
}

// Returns how many chunks a thread takes at a time. If the region computes too few values for several threads, one
// thread takes all chunks.
int64_t RegionGrain(const RowChunks& chunks, int64_t targets, int64_t edges, const RegionPass& pass,
                    const RegionRegisters& registers) {
  const int64_t values = registers.Size(targets, edges) + edges * pass.summed_columns;
  return ChunkGrain(chunks, values, kParallelGathers);
}

// Calls body(chunk, first target, number of targets). Errors: c10::Error if a tile needs more memory than there is.
template <class Body>
void ForRegionChunks(const RowChunks& chunks, int64_t targets, int64_t edges, const RegionPass& pass,
                     const RegionRegisters& registers, const Body& body) {
  try {
    ForChunks(chunks, RegionGrain(chunks, targets, edges, pass, registers), body);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK(false, "edge_region: no memory for a target's edges, of ", edges, " edges with ",
                registers.edge_columns, " values each");
  }
}

template <class T>
void RunRegionChunks(const RegionPlan& plan, const RegionInputs<T>& in, int64_t targets, int64_t edges,
                     std::span<T* const> outputs) {
  ForRegionChunks(RowChunks(targets, 1), targets, edges, plan.forward, plan.registers,
                  [&](int64_t, int64_t begin, int64_t size) { RunRegion<T>(plan, in, begin, begin + size, outputs); });
}

std::vector<Tensor> EdgeRegionCpu(at::TensorList inputs, const Tensor& offsets, const Tensor& places,
                                  at::TensorList indices, const OptionalTensors& index_offsets,
                                  const OptionalTensors& index_places, at::IntArrayRef code,
                                  at::ArrayRef<double> numbers) {
  const RegionCall call({inputs, offsets, places, indices, index_offsets, index_places, code, numbers});
  std::vector<Tensor> outputs;
  for (const int32_t o : call.region().outputs) {
    const RegionStep& step = call.region().steps[static_cast<size_t>(o)];
    outputs.push_back(at::empty({call.rows(step.level), step.width}, call.input(0).options()));
  }
  AT_DISPATCH_FLOATING_TYPES(call.input(0).scalar_type(), "edge_region", [&] {
    std::vector<scalar_t*> to;
    to.reserve(outputs.size());
    for (const Tensor& t : outputs) to.push_back(Write<scalar_t>(t));
    call.WithInputs<scalar_t>([&](const RegionInputs<scalar_t>& in) {
      RunRegionChunks<scalar_t>(call.plan(), in, call.targets(), call.edges(), to);
    });
  });
  return outputs;
}

// The state of computing an input's gradient: the memory that chunks write, and how the values of chunks are added
// up.
struct InputGradient {
  Tensor to;                         // the result, of the input's shape
  Tensor by_edge;                    // [E, width]: a row for each edge, summed by table row at the end
  int64_t part = -1;                 // where this gradient begins in each chunk's sums; -1: not summed by chunk
  int64_t table = 0;                 // for kGather, the number of table rows in each chunk's sums; 0: none
  const RegionStep* read = nullptr;  // the step that reads the input; null: no gradient reaches the input
};

// Returns true if the gradient of the table that `step` reads is summed chunk by chunk: the table is small, the edges
// are enough work for several threads, and no segments of the step's index were given.
bool IsSmallTable(const RegionCall& call, const RegionStep& step) {
  return step.op == RegionOp::kGather && !call.HasSegments(static_cast<size_t>(step.index)) &&
         call.input(static_cast<size_t>(step.input)).numel() <= kSmallTableValues &&
         call.edges() * step.width > 4 * kParallelGathers;
}

std::vector<InputGradient> GradientsOf(const RegionCall& call, const RegionGradientPlan& plan,
                                       const std::vector<char>& wanted, int64_t& parts) {
  std::vector<InputGradient> gradients(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    InputGradient& gradient = gradients[i];
    const Tensor& input = call.input(i);
    const int32_t reader = call.plan().reader[i];
    if (reader == -1 || !plan.active[static_cast<size_t>(reader)]) {
      gradient.to = at::zeros(input.sizes(), input.options());
      continue;
    }
    const RegionStep& step = call.region().steps[static_cast<size_t>(reader)];
    gradient.read = &step;
    gradient.to = at::empty(input.sizes(), input.options());
    if (step.op == RegionOp::kGather) {
      if (IsSmallTable(call, step)) gradient.table = input.size(0);
      if (gradient.table == 0) gradient.by_edge = at::empty({call.edges(), step.width}, input.options());
    }
    if (step.op == RegionOp::kShared || gradient.table > 0) {
      gradient.part = parts;
      parts += input.numel();
    }
  }
  return gradients;
}

template <class T>
void SumByRow(const RegionCall& call, const InputGradient& gradient) {
  const int64_t rows = gradient.to.size(0), width = gradient.read->width;
  const auto [offsets, places] = call.IndexSegments(static_cast<size_t>(gradient.read->index), rows);
  const RowChunks chunks(rows, 1);
  const T* const from = Read<T>(gradient.by_edge);
  const int32_t *const begins = Read<int32_t>(offsets), *const edges = Read<int32_t>(places);
  T* const to = Write<T>(gradient.to);
  ForChunks(chunks, ChunkGrain(chunks, call.edges() * width, kParallelGathers),
            [&](int64_t, int64_t begin, int64_t size) {
              SumOfPlaces<T>(from, width, begins, edges, begin, begin + size, to);
            });
}

// Runs a region on contiguous tensors. `options` are those of its outputs.
template <class T>
std::vector<Tensor> RunOn(const RegionPlan& plan, const std::vector<Tensor>& inputs, const std::vector<Tensor>& indices,
                          const Tensor& offsets, const Tensor& places, const at::TensorOptions& options) {
  const int64_t targets = offsets.numel() - 1, edges = places.numel();
  std::vector<const T*> from;
  std::vector<int64_t> strides(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    from.push_back(Read<T>(inputs[i]));
    const int32_t reader = plan.reader[i];
    if (reader != -1) strides[i] = plan.region.steps[static_cast<size_t>(reader)].width;
  }
  std::vector<const int64_t*> rows;
  rows.reserve(indices.size());
  for (const Tensor& index : indices) rows.push_back(Read<int64_t>(index));
  std::vector<Tensor> outputs;
  std::vector<T*> to;
  for (const int32_t o : plan.region.outputs) {
    outputs.push_back(at::empty({targets, plan.region.steps[static_cast<size_t>(o)].width}, options));
    to.push_back(Write<T>(outputs.back()));
  }
  const RegionInputs<T> in{.inputs = from,
                           .strides = strides,
                           .indices = rows,
                           .offsets = Read<int32_t>(offsets),
                           .places = Read<int32_t>(places)};
  RunRegionChunks<T>(plan, in, targets, edges, to);
  return outputs;
}

// Returns the gradient of input i. Each of its rows is summed over the edges that read this row of the input.
// target_of_edges: RegionCall::TargetOfEdges.
template <class T>
Tensor GradientOfRows(const RegionCall& call, const SourcePlan& plan, size_t i, const std::vector<Tensor>& grads,
                      const Tensor& target_of_edges) {
  std::vector<Tensor> of_targets;
  const auto find = [&](const std::vector<RegionSource>& sources) {
    std::vector<Tensor> found;
    for (const RegionSource& source : sources) {
      const auto place = static_cast<size_t>(source.place);
      found.push_back(source.kind == RegionSource::Kind::kInput      ? call.input(place).contiguous()
                      : source.kind == RegionSource::Kind::kGradient ? grads[place]
                                                                     : of_targets[place]);
    }
    return found;
  };
  if (!plan.targets.region.outputs.empty()) {
    of_targets =
        RunOn<T>(plan.targets, find(plan.target_inputs), {}, call.offsets(), call.places(), call.input(i).options());
  }
  std::vector<Tensor> indices;
  indices.reserve(plan.row_indices.size());
  for (const int32_t k : plan.row_indices) {
    indices.push_back(k == -1 ? target_of_edges : call.index(static_cast<size_t>(k)));
  }
  const RegionStep& read = call.region().steps[static_cast<size_t>(call.plan().reader[i])];
  const int64_t rows = call.input(i).size(0);
  const auto [offsets, places] = call.IndexSegments(static_cast<size_t>(read.index), rows);
  const Tensor sum = RunOn<T>(plan.rows, find(plan.row_inputs), indices, offsets.narrow(0, 0, rows + 1), places,
                              call.input(i).options())[0];
  return sum.view(call.input(i).sizes());
}

template <class T>
void RunGradient(const RegionCall& call, const RegionGradientPlan& plan, const std::vector<Tensor>& grads,
                 const std::vector<InputGradient>& gradients, int64_t parts_size) {
  std::vector<const T*> given;
  given.reserve(grads.size());
  for (const Tensor& t : grads) given.push_back(DataOrNull<T>(t));
  std::vector<int64_t> tables;
  tables.reserve(gradients.size());
  for (const InputGradient& g : gradients) tables.push_back(g.table);
  const RowChunks chunks(call.targets(), parts_size);
  const Tensor parts = at::empty({chunks.count(), parts_size}, call.input(0).options());
  call.WithInputs<T>([&](const RegionInputs<T>& in) {
    ForRegionChunks(chunks, call.targets(), call.edges(), plan.values, plan.registers,
                    [&](int64_t c, int64_t begin, int64_t size) {
                      std::vector<T*> to;
                      to.reserve(gradients.size());
                      for (const InputGradient& g : gradients) {
                        to.push_back(g.read == nullptr     ? nullptr
                                     : g.part != -1        ? Write<T>(parts) + c * parts_size + g.part
                                     : g.by_edge.defined() ? Write<T>(g.by_edge)
                                                           : Write<T>(g.to));
                      }
                      RunRegionGradient<T>(call.plan(), plan, in, begin, begin + size,
                                           {.outputs = given, .inputs = to, .tables = tables});
                    });
  });
  for (const InputGradient& g : gradients) {
    if (g.read == nullptr) continue;
    if (g.part != -1) AddParts<T>(Read<T>(parts) + g.part, parts_size, chunks.count(), g.to.numel(), Write<T>(g.to));
    if (g.by_edge.defined()) SumByRow<T>(call, g);
  }
}

// Returns the gradients of the inputs in `wanted`, in their order.
std::vector<Tensor> EdgeRegionBackwardCpu(const OptionalTensors& grads_in, at::TensorList inputs, const Tensor& offsets,
                                          const Tensor& places, at::TensorList indices,
                                          const OptionalTensors& index_offsets, const OptionalTensors& index_places,
                                          at::IntArrayRef code, at::ArrayRef<double> numbers,
                                          at::IntArrayRef wanted_in) {
  const RegionCall call({inputs, offsets, places, indices, index_offsets, index_places, code, numbers});
  const std::vector<int32_t>& outputs = call.region().outputs;
  TORCH_CHECK(grads_in.size() == outputs.size(), "edge_region_backward: ", grads_in.size(), " gradients for ",
              outputs.size(), " outputs");
  std::vector<Tensor> grads;
  std::vector<char> given, wanted(inputs.size(), 0);
  for (size_t j = 0; j < outputs.size(); ++j) {
    const std::optional<Tensor> grad = grads_in.get(j);
    const RegionStep& step = call.region().steps[static_cast<size_t>(outputs[j])];
    given.push_back(grad && grad->defined() ? 1 : 0);
    grads.push_back(given.back() ? grad->contiguous() : Tensor());
    TORCH_CHECK(!given.back() || (grads[j].dim() == 2 && grads[j].size(0) == call.rows(step.level) &&
                                  grads[j].size(1) == step.width && grads[j].is_cpu() &&
                                  grads[j].scalar_type() == call.input(0).scalar_type()),
                "edge_region_backward: the gradient of output ", j, " must be [", call.rows(step.level), ", ",
                step.width, "] of the inputs' type, not ", grads[j].toString(), grads[j].sizes());
  }
  for (const int64_t i : wanted_in) {
    TORCH_CHECK(i >= 0 && i < std::ssize(inputs), "edge_region_backward: there is no input ", i);
    wanted[static_cast<size_t>(i)] = 1;
  }
  std::vector<char> is_small(inputs.size(), 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int32_t reader = call.plan().reader[i];
    const bool small = reader != -1 && IsSmallTable(call, call.region().steps[static_cast<size_t>(reader)]);
    is_small[i] = small ? 1 : 0;
  }
  const std::shared_ptr<const GradientPlan> plan =
      call.Gradient({.wanted = wanted, .given = given, .is_small = std::move(is_small)});
  std::vector<Tensor> result(inputs.size());
  AT_DISPATCH_FLOATING_TYPES(call.input(0).scalar_type(), "edge_region_backward", [&] {
    Tensor target_of_edges;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const SourcePlan* const by_source = plan->by_source[i].get();
      if (by_source == nullptr) continue;
      if (!target_of_edges.defined()) target_of_edges = call.TargetOfEdges();
      result[i] = GradientOfRows<scalar_t>(call, *by_source, i, grads, target_of_edges);
    }
    if (!plan->by_tile) return;
    int64_t parts = 0;
    const std::vector<InputGradient> gradients = GradientsOf(call, *plan->by_tile, plan->wanted_by_tile, parts);
    RunGradient<scalar_t>(call, *plan->by_tile, grads, gradients, parts);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (plan->wanted_by_tile[i]) result[i] = gradients[i].to;
    }
  });
  std::vector<Tensor> in_order;
  for (const int64_t i : wanted_in) in_order.push_back(result[static_cast<size_t>(i)]);
  return in_order;
}

constexpr Operator<SegmentsOfCpu> kSegmentsOf{"segments_of(Tensor index, int rows) -> (Tensor, Tensor)"};
constexpr Operator<EdgeRegionCpu> kEdgeRegion{
    "edge_region(Tensor[] inputs, Tensor offsets, Tensor places, Tensor[] indices, Tensor?[] index_offsets, "
    "Tensor?[] index_places, int[] code, float[] numbers) -> Tensor[]"};
constexpr Operator<EdgeRegionBackwardCpu> kEdgeRegionBackward{
    "edge_region_backward(Tensor?[] grads, Tensor[] inputs, Tensor offsets, Tensor places, Tensor[] indices, "
    "Tensor?[] index_offsets, Tensor?[] index_places, int[] code, float[] numbers, int[] wanted) -> Tensor[]"};

class EdgeRegionFunction : public torch::autograd::Function<EdgeRegionFunction> {
 public:
  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                               const RegionArguments& a) {
    context->set_materialize_grads(false);
    variable_list saved(inputs.begin(), inputs.end());
    saved.push_back(a.offsets);
    saved.push_back(a.places);
    saved.insert(saved.end(), a.indices.begin(), a.indices.end());
    context->save_for_backward(std::move(saved));
    auto& data = context->saved_data;
    data["inputs"] = std::ssize(inputs);
    data["index_offsets"] = a.index_offsets;
    data["index_places"] = a.index_places;
    data["code"] = a.code;
    data["numbers"] = a.numbers;
    return kEdgeRegion(inputs, a.offsets, a.places, a.indices, a.index_offsets, a.index_places, a.code, a.numbers);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& grads) {
    auto& data = context->saved_data;
    const variable_list saved = context->get_saved_variables();
    const auto count = static_cast<size_t>(data["inputs"].toInt());
    const at::TensorList all(saved);
    variable_list gradients(count + 1);  // the last is for the argument that is not a tensor
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < count; ++i) {
      if (context->needs_input_grad(i)) wanted.push_back(static_cast<int64_t>(i));
    }
    OptionalTensors given;
    bool any = false;
    for (const Tensor& grad : grads) {
      given.push_back(IfDefined(grad));
      any |= grad.defined();
    }
    if (!any || wanted.empty()) return gradients;
    const std::vector<int64_t> code = data["code"].toIntVector();
    const std::vector<double> numbers = data["numbers"].toDoubleVector();
    const std::vector<Tensor> found = kEdgeRegionBackward(
        given, all.slice(0, count), saved[count], saved[count + 1], all.slice(count + 2),
        data["index_offsets"].to<OptionalTensors>(), data["index_places"].to<OptionalTensors>(), code, numbers, wanted);
    for (size_t k = 0; k < wanted.size(); ++k) gradients[static_cast<size_t>(wanted[k])] = found[k];
    return gradients;
  }
};

std::vector<Tensor> EdgeRegionAutograd(at::TensorList inputs, const Tensor& offsets, const Tensor& places,
                                       at::TensorList indices, const OptionalTensors& index_offsets,
                                       const OptionalTensors& index_places, at::IntArrayRef code,
                                       at::ArrayRef<double> numbers) {
  bool differentiated = false;
  for (const Tensor& t : inputs) differentiated |= t.requires_grad();
  if (!differentiated || !at::GradMode::is_enabled()) {
    return kEdgeRegion(inputs, offsets, places, indices, index_offsets, index_places, code, numbers);
  }
  return EdgeRegionFunction::apply(
      inputs, RegionArguments{inputs, offsets, places, indices, index_offsets, index_places, code, numbers});
}

// Runs a region without edges. Its targets are the rows of its inputs.
std::vector<Tensor> RowRegion(at::TensorList inputs, at::IntArrayRef code, at::ArrayRef<double> numbers) {
  const Tensor edges = at::empty({0}, at::kInt);
  const OptionalTensors none;
  return EdgeRegionAutograd(inputs, edges, edges, {}, none, none, code, numbers);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kSegmentsOf.Register(library);
  kEdgeRegion.Register(library);
  kEdgeRegionBackward.Register(library);
  library.impl("edge_region", torch::dispatch(c10::DispatchKey::Autograd, EdgeRegionAutograd));
  library.def("row_region(Tensor[] inputs, int[] code, float[] numbers) -> Tensor[]");
  library.impl("row_region", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, RowRegion));
}

bool RunsEdgeRegions(c10::Device device) { return device.is_cpu(); }

EdgeSegments SegmentsOf(const Tensor& index, int64_t rows) {
  auto [offsets, places] = kSegmentsOf(index, rows);
  return {offsets, places};
}

std::vector<Tensor> RunEdgeRegion(const EdgeRegion& region, const std::vector<Tensor>& inputs,
                                  const RegionEdges& edges) {
  const EncodedRegion encoded = Encode(region);
  OptionalTensors offsets, places;
  for (size_t k = 0; k < edges.indices.size(); ++k) {
    const EdgeSegments segments = k < edges.index_segments.size() ? edges.index_segments[k] : EdgeSegments();
    offsets.push_back(IfDefined(segments.offsets));
    places.push_back(IfDefined(segments.places));
  }
  return EdgeRegionAutograd(inputs, edges.targets.offsets, edges.targets.places, edges.indices, offsets, places,
                            encoded.code, encoded.numbers);
}

}  // namespace permafrost::nn
