#include "train/tasks/program_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/backend.h"
#include "program/rewritings.h"
#include "train/tasks/bound_program.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using program::ValueKind;

// The numbers of real rows of a batch.
struct RealRows {
  int64_t nodes = 0;
  int64_t predicted = 0;  // graphs, or seeds
  int64_t largest = 0;    // nodes of a set's largest graph
  bool classes = false;   // whether labels are classes
};

// An input that is a tensor.
template <class Batch>
struct TensorInput {
  std::string_view name;
  Tensor (*of)(const Batch& batch, const RealRows& rows);
  nn::EncoderInput ProgramModelOptions::*features = nullptr;  // null if the input is neither features nor labels
  bool weights = false;
  bool pairs = false;
};
struct NumberInput {
  std::string_view name;
  int64_t RealRows::*count;
};

// Returns labels for `rows` rows, [rows, columns] float32, or int64 classes. Rows beyond `labels` count as missing.
constexpr int64_t kIgnoredClass = -100;  // the class that torch.nn.CrossEntropyLoss ignores
Tensor Labels(const Tensor& labels, int64_t rows, bool classes) {
  const int64_t known = std::min(rows, labels.size(0));
  const Tensor values = at::constant_pad_nd(labels.narrow(0, 0, known), {0, 0, 0, rows - known},
                                            std::numeric_limits<double>::quiet_NaN());
  return classes ? at::where(values.isnan(), static_cast<double>(kIgnoredClass), values).to(at::kLong) : values;
}

using SetBatch = nn::GraphSetBatch;
constexpr TensorInput<SetBatch> kSetTensors[] = {
    {"x", [](const SetBatch& b, const RealRows& rows) { return b.node_features.narrow(0, 0, rows.nodes); },
     &ProgramModelOptions::node},
    {"edge_attr", [](const SetBatch& b, const RealRows&) { return b.edge_features; }, &ProgramModelOptions::edge},
    {"pos", [](const SetBatch& b, const RealRows& rows) { return b.positions.narrow(0, 0, rows.nodes); },
     &ProgramModelOptions::positions},
    {"edge_index",
     [](const SetBatch& b, const RealRows&) {
       return at::stack({b.edge_source, b.edge_target});
     }},
    {"y", [](const SetBatch& b, const RealRows& rows) { return Labels(b.labels, rows.predicted, rows.classes); },
     &ProgramModelOptions::labels},
    {"batch", [](const SetBatch& b, const RealRows& rows) { return b.graph_of_node.narrow(0, 0, rows.nodes); }}};
constexpr NumberInput kSetNumbers[] = {{"num_graphs", &RealRows::predicted},
                                       {"batch_size", &RealRows::predicted},
                                       {"num_nodes", &RealRows::nodes},
                                       {"max_num_nodes", &RealRows::largest}};

using Block = nn::NodeBlock;
// A program that reads this input scores the pairs itself.
constexpr std::string_view kPairsInput = "edge_label_index";
constexpr TensorInput<Block> kBlockTensors[] = {
    {"x", [](const Block& b, const RealRows& rows) { return b.features.narrow(0, 0, rows.nodes); },
     &ProgramModelOptions::node},
    {"edge_attr", [](const Block& b, const RealRows&) { return b.edge_features; }, &ProgramModelOptions::edge},
    {"pos", [](const Block& b, const RealRows& rows) { return b.positions.narrow(0, 0, rows.nodes); },
     &ProgramModelOptions::positions},
    {"edge_index",
     [](const Block& b, const RealRows&) {
       return at::stack({b.sources, b.edge_targets});
     }},
    {"y", [](const Block& b, const RealRows& rows) { return Labels(b.labels, rows.nodes, rows.classes); },
     &ProgramModelOptions::labels},
    {"edge_weight", [](const Block& b, const RealRows&) { return b.edge_weights; }, nullptr, /*weights=*/true},
    {kPairsInput,
     [](const Block& b, const RealRows&) {
       return at::stack({b.pairs.sources, b.pairs.targets});
     },
     nullptr, /*weights=*/false, /*pairs=*/true}};
constexpr NumberInput kBlockNumbers[] = {{"batch_size", &RealRows::predicted}, {"num_nodes", &RealRows::nodes}};

template <class Table>
auto RowNamed(const Table& table, std::string_view name) {
  return std::ranges::find_if(table, [&](const auto& row) { return row.name == name; });
}

// The inputs that a program may have on one kind of batch.
template <class Batch>
struct Inputs {
  std::span<const TensorInput<Batch>> tensors;
  std::span<const NumberInput> numbers;
  std::string_view level;

  absl::Status Check(const program::Input& input, const ProgramModelOptions& options) const {
    if (input.kind == ValueKind::kInt && RowNamed(numbers, input.name) != numbers.end()) return absl::OkStatus();
    const auto row = RowNamed(tensors, input.name);
    if (input.kind != ValueKind::kTensor || row == tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(AbslView(level), " have nothing for it; accepted: ", Names()));
    }
    if (row->weights && !options.weighted) return absl::InvalidArgumentError("the dataset's edges have no weights");
    if (row->pairs && options.num_outputs > 0) {
      return absl::InvalidArgumentError("the job predicts no links; accepted: with link_prediction");
    }
    if (row->features == nullptr) return absl::OkStatus();
    if (row->features == &ProgramModelOptions::labels && !options.labels.has_features()) {
      return absl::InvalidArgumentError("links have no labels");
    }
    return CheckFeatures(input, options.*row->features);
  }

  c10::IValue ValueOf(const program::Input& input, const Batch& batch, const RealRows& rows) const {
    if (input.kind == ValueKind::kInt) return rows.*RowNamed(numbers, input.name)->count;
    const auto row = RowNamed(tensors, input.name);
    const Tensor value = row->of(batch, rows);
    return row->features != nullptr && IsSqueezed(input) ? value.squeeze(1) : value;
  }

 private:
  std::string Names() const {
    std::vector<std::string_view> names;
    for (const auto& row : tensors) names.push_back(row.name);
    for (const auto& row : numbers) names.push_back(row.name);
    return absl::StrJoin(names, ", ", [](std::string* out, std::string_view name) { out->append(name); });
  }
};
constexpr Inputs<SetBatch> kOfSets{kSetTensors, kSetNumbers, "sets of graphs"};
constexpr Inputs<Block> kOfBlocks{kBlockTensors, kBlockNumbers, "large graphs"};

template <class Batch>
absl::StatusOr<std::unique_ptr<BoundProgram>> Bind(const Inputs<Batch>& inputs, const program::LoadedProgram& loaded,
                                                   const ProgramModelOptions& options, c10::Device device) {
  return BoundProgram::Make(loaded,
                            {.name = options.name,
                             .seed = options.seed,
                             .no_self_loops = options.no_self_loops,
                             .fused = options.fused,
                             .norms = options.padding},
                            device, [&](const program::Input& input) { return inputs.Check(input, options); });
}

// Throws c10::ValueError unless the prediction is [rows, outputs], or [rows] with one output. If `outputs` is 0, any
// number of columns is accepted.
void CheckPrediction(const Tensor& prediction, int64_t rows, int64_t outputs, const char* each) {
  const bool has_rows = prediction.dim() >= 1 && prediction.dim() <= 2 && prediction.size(0) == rows;
  TORCH_CHECK_VALUE(outputs > 0 || (has_rows && prediction.dim() == 2), "the module returns ", prediction.sizes(),
                    ", where [", rows,
                    ", channels] is accepted: a row for each node or seed, between which links are scored");
  TORCH_CHECK_VALUE(outputs == 0 || (has_rows && prediction.numel() == rows * outputs), "the module predicts ",
                    prediction.sizes(), ", where [", rows, ", ", outputs, "] is accepted: a row for each ", each,
                    ", and a column for each target or class");
}

// Throws c10::ValueError for scores that are neither [pairs] nor [pairs, 1].
void CheckScores(const Tensor& scores, int64_t pairs) {
  const bool fits = scores.dim() >= 1 && scores.dim() <= 2 && scores.size(0) == pairs && scores.numel() == pairs;
  TORCH_CHECK_VALUE(fits, "the module returns ", scores.sizes(), ", where [", pairs, "] or [", pairs,
                    ", 1] is accepted: a score for each pair of edge_label_index");
}

std::string DescribeProgram(const ProgramModelOptions& options, spec::ModelLevel level, const char* outputs) {
  return nlohmann::json{
      {"program", options.name}, {"level", spec::kModelLevelNames.Name(level)}, {outputs, options.num_outputs}}
      .dump();
}

// Returns bool [rows], true for the first `count` rows. `count` is [1] int64.
Tensor FirstRows(int64_t rows, const Tensor& count) { return at::arange(rows, count.options()).lt(count); }

// Threads: the device thread. Owns its tensors.
class ProgramOfGraphs final : public nn::GraphModel {
 public:
  static absl::StatusOr<std::unique_ptr<ProgramOfGraphs>> Make(const program::LoadedProgram& loaded,
                                                               const ProgramModelOptions& options, c10::Device device) {
    PF_ASSIGN_OR_RETURN(auto program, Bind(kOfSets, loaded, options, device));
    return std::make_unique<ProgramOfGraphs>(options, std::move(program));
  }
  ProgramOfGraphs(ProgramModelOptions options, std::unique_ptr<BoundProgram> program)
      : options_(std::move(options)), program_(std::move(program)) {}

  Tensor Forward(const SetBatch& batch, Mode mode) override {
    const bool padded = options_.padding.has_value();
    // Without `padding`, the batch has the least padding: one node and one graph.
    const int64_t least = padded ? 0 : 1;
    const RealRows rows{.nodes = batch.graph_of_node.size(0) - least,
                        .predicted = batch.padded_graphs - least,
                        .largest = options_.max_graph_nodes,
                        .classes = !options_.labels.categories.empty()};
    BoundProgram::RealRows real;
    if (padded) {
      real = {.nodes = FirstRows(rows.nodes, batch.real_nodes),
              .edges = batch.edge_target.lt(batch.real_nodes),
              .predicted = FirstRows(rows.predicted, batch.real_graphs)};
    }
    auto [prediction, loss] =
        program_->Run(mode, batch.step, padded ? &real : nullptr,
                      [&](const program::Input& input) { return kOfSets.ValueOf(input, batch, rows); });
    CheckPrediction(prediction, rows.predicted, options_.num_outputs, "graph");
    loss_ = std::move(loss);
    const Tensor predicted = prediction.to(at::kFloat).reshape({rows.predicted, options_.num_outputs});
    return padded ? predicted : at::constant_pad_nd(predicted, {0, 0, 0, least});
  }

  Tensor TakeLoss() override { return std::exchange(loss_, {}); }
  nn::TensorSet& tensors() override { return program_->tensors(); }
  std::string Describe() const override { return DescribeProgram(options_, spec::ModelLevel::kGraph, "num_targets"); }
  const BoundProgram* program() const { return program_.get(); }

 private:
  const ProgramModelOptions options_;
  const std::unique_ptr<BoundProgram> program_;
  Tensor loss_;  // loss of the last Forward
};

// Threads: the device thread. Owns its tensors.
class ProgramOfNodes final : public nn::NodeModel {
 public:
  static absl::StatusOr<std::unique_ptr<ProgramOfNodes>> Make(const program::LoadedProgram& loaded,
                                                              const ProgramModelOptions& options, c10::Device device) {
    PF_ASSIGN_OR_RETURN(auto program, Bind(kOfBlocks, loaded, options, device));
    return std::make_unique<ProgramOfNodes>(options, std::move(program));
  }
  ProgramOfNodes(ProgramModelOptions options, std::unique_ptr<BoundProgram> program)
      : options_(std::move(options)), program_(std::move(program)) {}

  Tensor Forward(const Block& block, Mode mode) override {
    const bool padded = options_.padding.has_value();
    const RealRows rows{.nodes = block.row_ends.back() - (padded ? 0 : options_.padding_rows),
                        .predicted = block.row_ends.front(),
                        .classes = !options_.labels.categories.empty()};
    BoundProgram::RealRows real;
    if (padded) {
      real.nodes = block.row_keys.ge(0);
      real.edges = real.nodes.index_select(0, block.edge_targets);
      real.predicted = real.nodes.narrow(0, 0, rows.predicted);
    }
    auto [prediction, loss] =
        program_->Run(mode, block.step, padded ? &real : nullptr,
                      [&](const program::Input& input) { return kOfBlocks.ValueOf(input, block, rows); });
    if (scores_pairs_) {
      const int64_t pairs = block.pairs.sources.size(0);
      CheckScores(prediction, pairs);
      return prediction.to(at::kFloat).reshape({pairs, 1});
    }
    const bool of_seeds = prediction.dim() >= 1 && prediction.size(0) == rows.predicted;
    CheckPrediction(prediction, of_seeds ? rows.predicted : rows.nodes, options_.num_outputs, "node or seed");
    loss_ = std::move(loss);
    const Tensor predicted = prediction.narrow(0, 0, rows.predicted).to(at::kFloat);
    return predicted.dim() == 2 ? predicted : predicted.unsqueeze(1);
  }

  Tensor TakeLoss() override { return std::exchange(loss_, {}); }
  nn::TensorSet& tensors() override { return program_->tensors(); }
  std::string Describe() const override { return DescribeProgram(options_, spec::ModelLevel::kNode, "num_outputs"); }
  const BoundProgram* program() const { return program_.get(); }

 private:
  const ProgramModelOptions options_;
  const std::unique_ptr<BoundProgram> program_;
  const bool scores_pairs_ = RowNamed(program_->inputs(), kPairsInput) != program_->inputs().end();
  Tensor loss_;  // loss of the last Forward
};

// Returns whether the program reads this input. Both forms of an archive have the same inputs.
bool Reads(const program::LoadedProgram& loaded, std::string_view input) {
  return std::ranges::any_of(loaded.train().program->inputs, [&](const auto& own) { return own.name == input; });
}

// If the program computes a loss, refuses class weights and link prediction, since that loss would ignore them.
absl::Status CheckOwnLoss(const spec::TrainOptions& options, const program::LoadedProgram& loaded,
                          std::string_view prefix) {
  Violations violations;
  if (loaded.train().program->outputs.size() != 2) return absl::OkStatus();
  const auto refuse = [&](bool given, std::string_view field) {
    if (!given) return;
    violations.Add(absl::StrCat(AbslView(prefix), AbslView(field)),
                   "is given for a program that returns a loss of its own; accepted: without");
  };
  refuse(!options.class_weights.empty(), "class_weights");
  refuse(options.links.enabled, "link_prediction");
  return violations.ToStatus();
}

std::string NoteOfSelfLoops(const program::LoadedProgram& loaded, int64_t self_loops) {
  if (self_loops == 0 || !program::WithoutSelfLoops(*loaded.train().program)) return {};
  return absl::StrCat("the program removes self-loops, and ", self_loops,
                      self_loops == 1 ? " edge of the dataset is one" : " edges of the dataset are such",
                      ": how many a batch has depends on values, so that no step of the program is captured; remove "
                      "self-loops before the import to have them captured");
}

}  // namespace

absl::Status AsViolation(const absl::Status& status, std::string_view prefix) {
  if (!absl::IsInvalidArgument(status)) return status;
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "model.program"), StdView(status.message()));
  return violations.ToStatus();
}

nn::EncoderInput LabelsOf(const spec::TrainOptions& options, int64_t outputs) {
  if (options.links.enabled) return {};
  if (spec::TraitsOf(options.loss).labels == spec::LabelKind::kClass) return {.categories = {outputs}};
  return {.float_columns = outputs};
}

absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device) {
  return ProgramOfGraphs::Make(loaded, options, device);
}

absl::StatusOr<std::unique_ptr<nn::NodeModel>> MakeProgramOfNodes(const program::LoadedProgram& loaded,
                                                                  const ProgramModelOptions& options,
                                                                  c10::Device device) {
  return ProgramOfNodes::Make(loaded, options, device);
}

namespace {

absl::StatusOr<program::LoadedProgram> LoadProgramOf(const spec::ModelOptions& model) {
  return model.program_bytes != nullptr ? program::LoadProgramFromBytes(*model.program_bytes)
                                        : program::LoadProgram(model.program_file);
}

}  // namespace

absl::StatusOr<MadeModel> MakeModel(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    int64_t self_loops, c10::Device device, std::string_view prefix,
                                    const ProgramForm& form) {
  if (!spec::IsProgram(options)) return MadeModel{.model = nn::MakeGraphModel(model, options.seed, device), .note = {}};
  PF_ASSIGN_OR_RETURN(const program::LoadedProgram loaded, LoadProgramOf(options.model));
  PF_RETURN_IF_ERROR(CheckOwnLoss(options, loaded, prefix));
  auto made = ProgramOfGraphs::Make(loaded,
                                    {.name = options.model.program.value(),
                                     .node = model.node,
                                     .edge = model.edge,
                                     .positions = {.float_columns = model.position_columns},
                                     .labels = LabelsOf(options, model.num_targets),
                                     .num_outputs = model.num_targets,
                                     .max_graph_nodes = model.max_graph_nodes,
                                     .seed = options.seed,
                                     .no_self_loops = self_loops == 0,
                                     .padding = form.padding,
                                     .fused = form.fused},
                                    device);
  if (!made.ok()) return AsViolation(made.status(), prefix);
  const BoundProgram* const program = (*made)->program();
  return MadeModel{.model = *std::move(made),
                   .program = program,
                   .reads_positions = Reads(loaded, "pos"),
                   .note = NoteOfSelfLoops(loaded, self_loops)};
}

absl::StatusOr<MadeNodeModel> MakeModel(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                        const NodeProgramData& data, c10::Device device, std::string_view prefix,
                                        const ProgramForm& form) {
  if (!spec::IsProgram(options)) {
    auto own = nn::MakeNodeModel(model, options.seed, device);
    nn::LayerWiseModel* const layers = own.get();
    return MadeNodeModel{.model = std::move(own), .layers = layers, .note = {}};
  }
  PF_ASSIGN_OR_RETURN(const program::LoadedProgram loaded, LoadProgramOf(options.model));
  PF_RETURN_IF_ERROR(CheckOwnLoss(options, loaded, prefix));
  auto made = ProgramOfNodes::Make(loaded,
                                   {.name = options.model.program.value(),
                                    .node = {.float_columns = model.in_channels},
                                    .edge = model.edge,
                                    .positions = {.float_columns = data.position_columns},
                                    .labels = LabelsOf(options, model.num_outputs),
                                    .weighted = data.weighted,
                                    .num_outputs = options.links.enabled ? 0 : model.num_outputs,
                                    .padding_rows = options.nodes.fan_outs.empty() ? 0 : 1,
                                    .seed = options.seed,
                                    .no_self_loops = data.self_loops == 0,
                                    .padding = form.padding,
                                    .fused = form.fused},
                                   device);
  if (!made.ok()) return AsViolation(made.status(), prefix);
  const BoundProgram* const program = (*made)->program();
  return MadeNodeModel{.model = *std::move(made),
                       .program = program,
                       .reads_edge_features = Reads(loaded, "edge_attr"),
                       .reads_edge_weights = Reads(loaded, "edge_weight"),
                       .reads_positions = Reads(loaded, "pos"),
                       .scores_pairs = Reads(loaded, kPairsInput),
                       .note = NoteOfSelfLoops(loaded, data.self_loops)};
}

}  // namespace permafrost::train
