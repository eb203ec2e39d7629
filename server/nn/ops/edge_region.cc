#include "nn/ops/edge_region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <new>
#include <tuple>

#include "nn/kernels/edge_region_rows.h"
#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/edge_region_call.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

// Returns how many chunks a thread takes at a time: all of them if too few values are computed to share.
int64_t RegionGrain(const RegionCall& call, const RowChunks& chunks, const RegionRegisters& registers) {
  return registers.Size(call.targets(), call.edges()) < kParallelGathers ? chunks.count() : 1;
}

// body(chunk, first target, targets). Errors: c10::Error where a tile needs more memory than there is.
template <class Body>
void ForRegionChunks(const RegionCall& call, const RowChunks& chunks, const RegionRegisters& registers,
                     const Body& body) {
  try {
    ForChunks(chunks, RegionGrain(call, chunks, registers), body);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK(false, "edge_region: no memory for a target's edges, of ", call.edges(), " edges with ",
                registers.edge_columns, " values each");
  }
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
  const RowChunks chunks(call.targets(), 1);
  AT_DISPATCH_FLOATING_TYPES(call.input(0).scalar_type(), "edge_region", [&] {
    std::vector<scalar_t*> to;
    for (const Tensor& t : outputs) to.push_back(Write<scalar_t>(t));
    call.WithInputs<scalar_t>([&](const RegionInputs<scalar_t>& in) {
      ForRegionChunks(call, chunks, call.plan().registers, [&](int64_t, int64_t begin, int64_t size) {
        RunRegion<scalar_t>(call.plan(), in, begin, begin + size, to);
      });
    });
  });
  return outputs;
}

// An input's gradient on its way: where chunks write it, and how they are added up.
struct InputGradient {
  Tensor to;                         // like the input
  Tensor by_edge;                    // [E, width]: summed by row in the end
  int64_t part = -1;                 // where each chunk's share begins among its parts; -1: there is none
  int64_t table = 0;                 // rows of that share, for kGather
  const RegionStep* read = nullptr;  // null: no gradient comes to the input
};

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
      if (!call.HasSegments(static_cast<size_t>(step.index)) && input.numel() <= kSmallTableValues) {
        gradient.table = input.size(0);
      }
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
  ForChunks(chunks, call.edges() * width < kParallelGathers ? chunks.count() : 1,
            [&](int64_t, int64_t begin, int64_t size) {
              SumOfPlaces<T>(from, width, begins, edges, begin, begin + size, to);
            });
}

template <class T>
void RunGradient(const RegionCall& call, const RegionGradientPlan& plan, const std::vector<Tensor>& grads,
                 const std::vector<InputGradient>& gradients, int64_t parts_size) {
  std::vector<const T*> given;
  for (const Tensor& t : grads) given.push_back(DataOrNull<T>(t));
  std::vector<int64_t> tables;
  for (const InputGradient& g : gradients) tables.push_back(g.table);
  const RowChunks chunks(call.targets(), parts_size);
  const Tensor parts = at::empty({chunks.count(), parts_size}, call.input(0).options());
  call.WithInputs<T>([&](const RegionInputs<T>& in) {
    ForRegionChunks(call, chunks, plan.registers, [&](int64_t c, int64_t begin, int64_t size) {
      std::vector<T*> to;
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

// Gradients of the inputs that are wanted, in their order.
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
    given.push_back(grad && grad->defined());
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
  const RegionGradientPlan plan(call.plan(), wanted, given);
  int64_t parts = 0;
  const std::vector<InputGradient> gradients = GradientsOf(call, plan, wanted, parts);
  AT_DISPATCH_FLOATING_TYPES(call.input(0).scalar_type(), "edge_region_backward",
                             [&] { RunGradient<scalar_t>(call, plan, grads, gradients, parts); });
  std::vector<Tensor> result;
  for (const int64_t i : wanted_in) result.push_back(gradients[static_cast<size_t>(i)].to);
  return result;
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
    variable_list gradients(count + 1);  // the last: of what is not a tensor
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

// A region without edges, whose targets are the rows of its inputs.
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
