#include "train/tasks/program_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/step.h"
#include "base/string_view.h"
#include "base/text.h"
#include "device/backend.h"
#include "device/cpu/tape.h"
#include "nn/ops/dropout.h"
#include "program/check.h"
#include "program/interpreter.h"
#include "program/self_loops.h"
#include "program/shared_memory.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using program::ValueKind;

// The rows of a batch that are real.
struct RealRows {
  int64_t nodes = 0, edges = 0, graphs = 0;
  int64_t largest = 0;  // nodes of the set's largest graph
};

// The batch is padded as little as it can be: by a node and a graph.
RealRows CountRows(const nn::GraphSetBatch& batch, int64_t largest) {
  return {.nodes = batch.graph_of_node.size(0) - 1,
          .edges = batch.edge_source.size(0),
          .graphs = batch.padded_graphs - 1,
          .largest = largest};
}

using SetFeatures = nn::EncoderInput ProgramModelOptions::*;
Tensor NodeFeatures(const nn::GraphSetBatch& batch, const RealRows& rows) {
  return batch.node_features.narrow(0, 0, rows.nodes);
}
Tensor EdgeFeatures(const nn::GraphSetBatch& batch, const RealRows& /*rows*/) { return batch.edge_features; }
Tensor EdgeIndex(const nn::GraphSetBatch& batch, const RealRows& /*rows*/) {
  return at::stack({batch.edge_source, batch.edge_target});
}
Tensor GraphOfNode(const nn::GraphSetBatch& batch, const RealRows& rows) {
  return batch.graph_of_node.narrow(0, 0, rows.nodes);
}

// Tensors that a program may read. `features`: the columns of the set; null for indices.
constexpr struct {
  std::string_view name;
  Tensor (*of)(const nn::GraphSetBatch& batch, const RealRows& rows);
  SetFeatures features;
} kTensors[] = {{"x", NodeFeatures, &ProgramModelOptions::node},
                {"edge_attr", EdgeFeatures, &ProgramModelOptions::edge},
                {"edge_index", EdgeIndex, nullptr},
                {"batch", GraphOfNode, nullptr}};
constexpr struct {
  std::string_view name;
  int64_t RealRows::*count;
} kNumbers[] = {{"num_graphs", &RealRows::graphs},
                {"batch_size", &RealRows::graphs},
                {"num_nodes", &RealRows::nodes},
                {"max_num_nodes", &RealRows::largest}};

template <class Table>
auto RowNamed(const Table& table, std::string_view name) {
  return std::ranges::find_if(table, [&](const auto& row) { return row.name == name; });
}

std::string TypeText(program::DType dtype, size_t dimensions) {
  return absl::StrCat(AbslView(program::kDTypeNames.Name(dtype)), " of ", dimensions, " dimensions");
}

// Checks that a program's features have the set's type and columns.
absl::Status CheckFeatures(const program::Input& input, const nn::EncoderInput& features) {
  if (!features.has_features()) return absl::InvalidArgumentError("the dataset has no such features");
  const bool floats = features.categories.empty();
  const int64_t columns = floats ? features.float_columns : std::ssize(features.categories);
  const program::DType wanted = floats ? program::DType::kFloat32 : program::DType::kInt64;
  const std::vector<program::Size>& sizes = input.type.sizes;
  const bool squeezed = sizes.size() == 1 && columns == 1;
  const bool fits = squeezed || (sizes.size() == 2 && (!sizes[1].expression.empty() || sizes[1].number == columns));
  if (fits && input.type.dtype == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the program takes ", TypeText(input.type.dtype, sizes.size()),
      sizes.size() == 2 && sizes[1].expression.empty() ? absl::StrCat(", with ", sizes[1].number, " columns") : "",
      "; the dataset has ", columns, columns == 1 ? " column" : " columns", " of ",
      AbslView(program::kDTypeNames.Name(wanted))));
}

absl::Status CheckInput(const program::Input& input, const ProgramModelOptions& options) {
  if (input.kind == ValueKind::kInt && RowNamed(kNumbers, input.name) != std::end(kNumbers)) return absl::OkStatus();
  const auto* const row = RowNamed(kTensors, input.name);
  if (input.kind != ValueKind::kTensor || row == std::end(kTensors)) {
    return absl::InvalidArgumentError(
        "sets of graphs have nothing for it; x, edge_attr, edge_index, batch, num_graphs, batch_size, num_nodes and "
        "max_num_nodes are accepted");
  }
  return row->features == nullptr ? absl::OkStatus() : CheckFeatures(input, options.*row->features);
}

constexpr std::string_view kDropouts[] = {"torch.ops.aten.dropout.default", "torch.ops.aten.dropout_.default"};

absl::Status CheckForm(const program::Program& form, const ProgramModelOptions& options) {
  for (const program::Input& input : form.inputs) {
    if (absl::Status status = CheckInput(input, options); !status.ok())
      return Annotate(status, absl::StrCat("input ", Quote(input.name)));
  }
  if (form.outputs.size() != 1 || form.outputs[0] == program::kNoValue ||
      form.graph.values[form.outputs[0]].kind != ValueKind::kTensor) {
    return absl::InvalidArgumentError(
        absl::StrCat("the module returns ", form.outputs.size(), " values; one tensor, the prediction, is accepted"));
  }
  for (const program::Node* node : program::RandomNodes(form)) {
    if (std::ranges::find(kDropouts, node->target) != std::end(kDropouts)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(program::Describe(*node), ": draws numbers; of those that do, dropout alone is accepted"));
  }
  return absl::OkStatus();
}

// Returns the values that outputs or writes depend on. The rest is skipped: exports keep nodes that nothing reads.
std::set<program::ValueIndex> UsedValues(const program::Graph& graph) {
  std::set<program::ValueIndex> used(graph.outputs.begin(), graph.outputs.end());
  const auto is_used = [&](const program::Output& output) {
    return std::ranges::any_of(output.values, [&](program::ValueIndex value) { return used.contains(value); });
  };
  for (const program::Node& node : graph.nodes | std::views::reverse) {
    if (!program::WritesInPlace(node) && !std::ranges::any_of(node.outputs, is_used)) continue;
    const std::vector<program::ValueIndex> inputs = program::InputsOf(node);
    used.insert(inputs.begin(), inputs.end());
  }
  return used;
}

// Threads: the device thread. Owns its tensors.
class ProgramModel final : public nn::GraphModel {
 public:
  ProgramModel(ProgramModelOptions options, c10::Device device) : options_(std::move(options)), device_(device) {}

  absl::Status Bind(const program::LoadedProgram& loaded) {
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      program::Form form = mode == Mode::kTrain ? loaded.train() : loaded.eval();
      if (options_.no_self_loops) {
        if (auto without = program::WithoutSelfLoops(*form.program))
          form.program = std::make_shared<const program::Program>(*std::move(without));
      }
      PF_RETURN_IF_ERROR(CheckForm(*form.program, options_));
      std::vector<Tensor> state;
      state.reserve(form.state.size());
      for (const Tensor& tensor : form.state) state.push_back(OnDevice(tensor));
      program::InterpreterOptions how{
          .device = device_, .draw = {}, .max_tensor_bytes = static_cast<int64_t>(MemoryLimit())};
      how.draw = [this](const program::Node& node, int64_t place, torch::jit::Stack& stack) {
        Drop(node, place, stack);
      };
      PF_ASSIGN_OR_RETURN(auto made, program::Interpreter::Make(form.program, state, std::move(how)));
      PF_RETURN_IF_ERROR(AddState(made, state));
      interpreters_[static_cast<size_t>(mode)].emplace(std::move(made));
    }
    if (!tensors_.parameters().empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("it has no parameters to train");
  }

  Tensor Forward(const nn::GraphSetBatch& batch, Mode mode) override {
    program::Interpreter& interpreter = *interpreters_[static_cast<size_t>(mode)];
    const RealRows rows = CountRows(batch, options_.max_graph_nodes);
    std::vector<c10::IValue> inputs;
    for (const program::Input& input : interpreter.program().inputs) inputs.push_back(ValueOf(input, batch, rows));
    step_ = batch.step;
    const Tensor prediction = interpreter.Run(inputs)[0].toTensor();
    step_.reset();
    TORCH_CHECK_VALUE(prediction.dim() >= 1 && prediction.dim() <= 2 && prediction.size(0) == rows.graphs &&
                          prediction.numel() == rows.graphs * options_.num_targets,
                      "the module predicts ", prediction.sizes(), ", where [", rows.graphs, ", ", options_.num_targets,
                      "] is accepted: a row for each graph, and a column for each target or class");
    const Tensor real = prediction.to(at::kFloat).reshape({rows.graphs, options_.num_targets});
    return at::constant_pad_nd(real, {0, 0, 0, batch.padded_graphs - rows.graphs});
  }

  nn::TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override {
    return nlohmann::json{{"program", options_.name},
                          {"level", spec::kModelLevelNames.Name(spec::ModelLevel::kGraph)},
                          {"num_targets", options_.num_targets}}
        .dump();
  }

 private:
  // A tensor of the file as one of the model's, the same for all of its names. The program that was loaded stays as it
  // is.
  Tensor OnDevice(const Tensor& tensor) {
    Tensor& own = own_[tensor.unsafeGetTensorImpl()];
    if (own.defined()) return own;
    own = tensor.detach().to(device_, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    return own.set_requires_grad(tensor.requires_grad());
  }

  // Adds the form's tensors that no other form has.
  absl::Status AddState(const program::Interpreter& interpreter, const std::vector<Tensor>& state) {
    const program::Program& form = interpreter.program();
    const std::set<program::ValueIndex> used = UsedValues(form.graph);
    const std::vector<size_t>& mutated = interpreter.mutated();
    std::set<const c10::TensorImpl*> read;  // under any of their names
    for (size_t i = 0; i < state.size(); ++i) {
      if (used.contains(form.state[i].value)) read.insert(state[i].unsafeGetTensorImpl());
    }
    for (size_t i = 0; i < state.size(); ++i) {
      const program::State& row = form.state[i];
      const bool is_parameter = row.kind == program::StateKind::kParameter;
      if (!added_.insert(state[i].unsafeGetTensorImpl()).second) continue;
      if (!is_parameter && !row.persistent && !std::ranges::binary_search(mutated, i)) {
        tensors_.AddConstant(absl::StrCat(form.form, ".", row.name), state[i]);
        continue;
      }
      const bool trained = is_parameter && state[i].requires_grad();
      if (trained && state[i].scalar_type() != at::kFloat) {
        return absl::InvalidArgumentError(absl::StrCat("parameter ", Shorten(row.name), ": is ",
                                                       c10::toString(state[i].scalar_type()),
                                                       ", where Float is trained; call float() on the module"));
      }
      if (!is_parameter) {
        tensors_.AddBuffer(row.name, state[i]);
      } else if (trained && read.contains(state[i].unsafeGetTensorImpl())) {
        tensors_.AddParameter(row.name, state[i]);
      } else {
        tensors_.AddFixedParameter(row.name, state[i]);
      }
    }
    return absl::OkStatus();
  }

  static c10::IValue ValueOf(const program::Input& input, const nn::GraphSetBatch& batch, const RealRows& rows) {
    if (input.kind == ValueKind::kInt) return rows.*RowNamed(kNumbers, input.name)->count;
    const auto& row = *RowNamed(kTensors, input.name);
    const Tensor value = row.of(batch, rows);
    const bool squeezed = row.features != nullptr && input.type.sizes.size() == 1;
    return squeezed ? value.squeeze(1) : value;
  }

  // Dropout of rows: the first dimension.
  void Drop(const program::Node& node, int64_t place, torch::jit::Stack& stack) const {
    const Tensor x = stack[0].toTensor();
    const double p = stack[1].toDouble();
    const nn::DropoutKey key{.seed = options_.seed, .layer = place};
    const bool in_place = node.target == kDropouts[1];
    if (!in_place && p < 1 && x.dim() == 2 && x.scalar_type() == at::kFloat) {
      return stack.assign({nn::Dropout(x, step_, key, p)});
    }
    // A mask of its own: x may be of any type and rank.
    const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
    const Tensor ones =
        at::ones({rows, x.numel() / std::max<int64_t>(rows, 1)}, at::TensorOptions(at::kFloat).device(x.device()));
    const Tensor kept = p >= 1 ? at::zeros_like(ones) : nn::Dropout(ones, step_, key, p);
    const Tensor mask = kept.view(x.sizes()).to(x.scalar_type());
    stack.assign({in_place ? x.mul_(mask) : x * mask});
  }

  const ProgramModelOptions options_;
  const c10::Device device_;
  nn::TensorSet tensors_;
  std::map<const c10::TensorImpl*, Tensor> own_;  // by the tensor that was loaded
  std::set<const c10::TensorImpl*> added_;
  std::optional<program::Interpreter> interpreters_[2];  // by Mode
  Tensor step_;                                          // [1] int64, of the batch that Forward runs
};

}  // namespace

absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device) {
  auto model = std::make_unique<ProgramModel>(options, device);
  if (absl::Status status = model->Bind(loaded); !status.ok())
    return Annotate(status, absl::StrCat("program ", Quote(options.name)));
  return model;
}

namespace {

absl::Status AsViolation(const absl::Status& status, std::string_view prefix) {
  if (!absl::IsInvalidArgument(status)) return status;
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "model.program"), StdView(status.message()));
  return violations.ToStatus();
}

// Two batches that stand for larger ones. All sizes of the second are twice those of the first, padding apart.
constexpr BatchShape kSmall{.nodes = 33, .edges = 64, .graphs = 5}, kTwice{.nodes = 65, .edges = 128, .graphs = 9};

Tensor Zeros(const nn::EncoderInput& features, int64_t rows) {
  if (!features.has_features()) return {};
  return features.categories.empty() ? at::zeros({rows, features.float_columns}, at::kFloat)
                                     : at::zeros({rows, std::ssize(features.categories)}, at::kLong);
}

// A batch of this shape, padding included: a ring of nodes with features of 0.
nn::GraphSetBatch MakeBatch(const nn::GraphModelOptions& model, const BatchShape& shape) {
  const int64_t nodes = shape.nodes - 1, graphs = shape.graphs - 1;
  const Tensor targets = at::arange(shape.edges, at::kLong).mul(nodes).floor_divide(std::max<int64_t>(shape.edges, 1));
  return {.padded_graphs = shape.graphs,
          .node_features = Zeros(model.node, shape.nodes),
          .edge_features = Zeros(model.edge, shape.edges),
          .edge_source = targets.add(1).remainder(nodes),
          .edge_target = targets,
          .graph_of_node = at::arange(shape.nodes, at::kLong).mul(graphs).floor_divide(nodes),
          .labels = {},
          .real_nodes = {},
          .real_graphs = {},
          .step = at::zeros({1}, at::kLong)};
}

// A forward pass that is only counted reads no more than this. A program of many large products would keep whoever
// asks waiting.
constexpr double kMostRead = 1 << 30;
struct ReadsTooMuch {};

// The operators of a forward pass; the bytes that they read, each time they do; and those of the tensors among them,
// each once.
struct Read {
  int64_t operators = 0;
  double read = 0, made = 0;
};

// The tensors of `beside` are made by nobody. Throws ReadsTooMuch.
Read Listen(const nn::TensorSet& beside, const std::function<void()>& run) {
  Read counted;
  std::set<const c10::StorageImpl*> seen;
  for (const nn::NamedTensor& t : beside.All()) seen.insert(t.value.storage().unsafeGetStorageImpl());
  // Keeps addresses from being given twice, and no bytes.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held;
  const auto add = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto bytes = static_cast<double>(tensor.storage().nbytes());
    counted.read += bytes;
    if (!seen.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
    held.push_back(tensor.storage().getWeakStorageImpl());
    counted.made += bytes;
  };
  device::Tape::Listen(
      [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
        ++counted.operators;
        const size_t arguments = op.schema().arguments().size();
        for (const c10::IValue& value : std::span(stack).last(arguments)) {
          if (value.isTensor()) add(value.toTensor());
          if (!value.isTensorList()) continue;
          for (const c10::IValue& tensor : value.toListRef()) add(tensor.toTensor());
        }
        if (counted.read > kMostRead) throw ReadsTooMuch();
        return false;
      },
      run);
  return counted;
}

std::string NoteOfSelfLoops(const program::LoadedProgram& loaded, int64_t self_loops) {
  if (self_loops == 0 || !program::WithoutSelfLoops(*loaded.train().program)) return {};
  return absl::StrCat("the program removes self-loops, and ", self_loops,
                      self_loops == 1 ? " edge of the dataset is one" : " edges of the dataset are such",
                      ": how many a batch has depends on values, so that no step of the program is captured; remove "
                      "self-loops before the import to have them captured");
}

// A training step has about this many operators for each one of the forward pass; recording keeps about this many bytes
// for each.
constexpr int64_t kOperatorsOfStep = 4, kBytesOfOperator = 600;

}  // namespace

absl::StatusOr<MadeModel> MakeModel(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    int64_t self_loops, c10::Device device, std::string_view prefix) {
  if (!spec::IsProgram(options)) return MadeModel{.model = nn::MakeGraphModel(model, options.seed, device), .note = {}};
  PF_ASSIGN_OR_RETURN(const program::LoadedProgram loaded, program::LoadProgram(options.model.program_file));
  auto made = MakeProgramModel(loaded,
                               {.name = options.model.program.value(),
                                .node = model.node,
                                .edge = model.edge,
                                .num_targets = model.num_targets,
                                .max_graph_nodes = model.max_graph_nodes,
                                .seed = options.seed,
                                .no_self_loops = self_loops == 0},
                               device);
  if (!made.ok()) return AsViolation(made.status(), prefix);
  return MadeModel{.model = *std::move(made), .note = NoteOfSelfLoops(loaded, self_loops)};
}

absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix) {
  if (!spec::IsProgram(options)) {
    const spec::ModelOptions& own = model.model;
    const auto nodes = static_cast<double>(largest.nodes);
    return StepCost{.model = nn::CostOf(model, {.nodes = std::vector(static_cast<size_t>(own.num_layers) + 1, nodes),
                                                .edges = static_cast<double>(largest.edges),
                                                .graphs = static_cast<double>(largest.graphs)}),
                    .executable_bytes = device::ExecutableBytes(own.num_layers, own.lowering == spec::Lowering::kAuto)};
  }
  PF_ASSIGN_OR_RETURN(const MadeModel made, MakeModel(options, model, /*self_loops=*/0, at::kCPU, prefix));
  const auto run = [&](const BatchShape& shape) {
    const nn::GraphSetBatch batch = MakeBatch(model, shape);
    return Listen(made.model->tensors(), [&] { made.model->Forward(batch, Mode::kTrain); });
  };
  int64_t operators = 0;
  double forward = 0, values = 0;
  try {
    const Read one = run(kSmall), two = run(kTwice);
    const auto times = [](int64_t all, int64_t rows) { return static_cast<double>(all) / static_cast<double>(rows); };
    const double larger = std::max(
        {times(largest.nodes, kSmall.nodes), times(largest.edges, kSmall.edges), times(largest.graphs, kSmall.graphs)});
    forward = one.made + std::max(two.made - one.made, 0.0) * (larger - 1);
    operators = two.operators;
    values = forward / sizeof(float) / static_cast<double>(std::max<int64_t>(operators, 1));
  } catch (const ReadsTooMuch&) {
    values = std::numeric_limits<double>::infinity();
  } catch (const c10::ValueError& error) {
    return AsViolation(absl::InvalidArgumentError(error.what_without_backtrace()), prefix);
  } catch (const std::exception&) {
    forward = 0;  // the program may need other values, or more rows
  }
  return StepCost{.model = {.parameters = static_cast<double>(made.model->tensors().num_parameter_values()),
                            .activations = 2 * forward / sizeof(float)},
                  .executable_bytes = kOperatorsOfStep * kBytesOfOperator * operators,
                  .operator_values = values};
}

}  // namespace permafrost::train
