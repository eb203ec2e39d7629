#include "train/loop/initial_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "nn/safetensors.h"
#include "train/tasks/categories.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node2vec_task.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/program_model.h"

namespace permafrost::train {
namespace {

using nn::NamedTensor;

std::string DescribeWeights(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes();
  return out.str();
}

bool Fits(const at::Tensor& from, const at::Tensor& to) {
  return from.sizes() == to.sizes() && from.scalar_type() == to.scalar_type();
}

// Returns text such as "head.0.weight, head.0.bias and 3 more".
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMost) absl::StrAppend(&text, " and ", names.size() - kMost, " more");
  return text;
}

struct Matches {
  std::vector<std::pair<at::Tensor, at::Tensor>> taken;  // pairs of source and destination
  // Names of unmatched tensors: `left` of the file, and `missing` of the model.
  std::vector<std::string> left, missing;
  // For strict loading: one entry, with the reason, for each tensor that is left or missing. A tensor whose shape
  // differs is both, but has a single entry.
  std::vector<std::string> differences;
};

Matches Match(const std::vector<NamedTensor>& file, const std::vector<NamedTensor>& model) {
  Matches matches;
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const NamedTensor& t : file) by_name.emplace(t.name, t.value);
  for (const NamedTensor& t : model) {
    const auto found = by_name.find(t.name);
    if (found != by_name.end() && Fits(found->second, t.value)) {
      matches.taken.emplace_back(found->second, t.value);
      by_name.erase(found);
      continue;
    }
    matches.missing.push_back(t.name);
    if (found == by_name.end()) {
      matches.differences.push_back(absl::StrCat(t.name, " is not among them"));
      continue;
    }
    matches.differences.push_back(
        absl::StrCat(t.name, " is ", DescribeWeights(found->second), ", the model has ", DescribeWeights(t.value)));
    matches.left.push_back(t.name);
    by_name.erase(found);
  }
  for (const NamedTensor& t : file) {
    if (!by_name.contains(t.name)) continue;
    matches.left.push_back(t.name);
    matches.differences.push_back(absl::StrCat(t.name, " is no tensor of the model"));
  }
  return matches;
}

absl::StatusOr<nn::SafetensorsFile> Decode(std::string_view file, std::string_view source) {
  absl::StatusOr<nn::SafetensorsFile> decoded = nn::DecodeSafetensors(file);
  if (decoded.ok()) return decoded;
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(source), " is no safetensors file of weights: ", decoded.status().message()));
}

void Copy(const Matches& matches) {
  const at::NoGradGuard no_grad;
  for (const auto& [from, to] : matches.taken) to.copy_(from);
}

// Copies all tensors, or fails if any tensor differs. `hint` is appended to the error.
absl::Status CopyAll(const Matches& matches, std::string_view source, std::string_view hint) {
  const size_t count = matches.differences.size();
  if (count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the weights of ", AbslView(source),
                                                   " are not the model's: ", matches.differences.front(), "; ", count,
                                                   count == 1 ? " tensor differs" : " tensors differ", AbslView(hint)));
  }
  Copy(matches);
  return absl::OkStatus();
}

// Calls `use` with the tensors of a job's model as meta tensors: they have names and shapes, but no values and no
// memory.
absl::Status WithModel(const spec::TrainOptions& options, const data::ImportedSummary& summary, std::string_view prefix,
                       const std::function<absl::Status(nn::TensorSet&)>& use) {
  if (const auto* set = std::get_if<data::GraphSetSummary>(&summary)) {
    PF_ASSIGN_OR_RETURN(const nn::GraphModelOptions model, GraphModelFor(options, *set, prefix));
    PF_ASSIGN_OR_RETURN(const MadeModel made, MakeModel(options, model, /*self_loops=*/0, at::kMeta, prefix));
    return use(made.model->tensors());
  }
  if (Walks(options)) {
    nn::TensorSet tensors;
    AddEmbedding(options, std::get<data::GraphSummary>(summary).nodes, at::kMeta, tensors);
    return use(tensors);
  }
  const auto& graph = std::get<data::GraphSummary>(summary);
  PF_ASSIGN_OR_RETURN(const JobNodeModel model, NodeModelFor(options, graph, kNoLimits, prefix));
  PF_ASSIGN_OR_RETURN(const MadeNodeModel of_nodes, MakeModel(options, model, ProgramDataOf(graph), at::kMeta, prefix));
  if (options.links.enabled) {
    const nn::LinkDecoder decoder(options.links.score, options.model.hidden_channels, options.seed, at::kMeta,
                                  of_nodes.model->tensors());
  }
  return use(of_nodes.model->tensors());
}

std::string TellMoved(const MovedRows& moved) {
  std::string text;
  if (moved.taken > 0 || moved.fresh > 0) {
    absl::StrAppend(&text, "; categories by their values in the source: ", moved.taken, " taken, ", moved.fresh,
                    " new ones begin as in a new job");
  }
  if (moved.other_classes) absl::StrAppend(&text, "; its labels stand for other classes than those of the weights");
  return text;
}

bool HasEmbeddings(const nn::TensorSet& tensors) {
  return std::ranges::any_of(tensors.All(), [](const NamedTensor& tensor) {
    return absl::StrContains(tensor.name, "_encoder.embeddings.") && tensor.value.size(0) > 1;
  });
}

// If the weights are known to come from another dataset, checks that the values of the categories are known, both for
// the weights and for the job's dataset.
absl::Status CheckTables(const spec::TrainOptions& options, const data::ImportedSummary& summary, std::string_view file,
                         const WeightsTarget& target) {
  if (!target.other_dataset || !ReadsCategories(options, summary)) return absl::OkStatus();
  const std::string source = absl::StrCat("jobs/", options.init_from.job.value());
  PF_ASSIGN_OR_RETURN(const std::optional<data::Categories> known, CategoriesOfWeights(file, source));
  if (known && target.categories) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      known ? "the job's dataset was imported" : absl::StrCat("the weights of ", source, " were trained"),
      " by an older version, which did not keep what categories stand for in the source, and the two datasets differ: "
      "import ",
      known ? "it again" : "the dataset of that job again, and train on it anew"));
}

absl::Status AsViolation(const absl::Status& status, std::string_view prefix, std::string_view field) {
  if (status.ok()) return status;
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), AbslView(field)), StdView(status.message()));
  return violations.ToStatus();
}

// The table of node rows, for node2vec and for learned inputs.
constexpr std::string_view kRowsTensor = "embedding.weight";
// The name of a tensor [nodes], int64, in a file that MapNodeRows makes for one job. For each node of the job's
// dataset, it holds the node's row in kRowsTensor, or kNoRow.
constexpr std::string_view kPlacesTensor = "permafrost.node_rows";
constexpr const char* kNamesKey = "permafrost.node_names";

std::vector<NamedTensor>::iterator Find(std::vector<NamedTensor>& tensors, std::string_view name) {
  return std::ranges::find(tensors, name, &NamedTensor::name);
}

absl::Status RefuseRows(std::string_view prefix, const std::string& why) {
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "init_from"), why);
  return violations.ToStatus();
}

const data::Graph* GraphOf(const data::OpenedDataset& dataset) {
  const auto* graph = std::get_if<std::shared_ptr<const data::Graph>>(&dataset);
  return graph == nullptr ? nullptr : graph->get();
}

std::string SourceOf(const spec::TrainOptions& options) {
  const spec::InitialWeights& from = options.init_from;
  return from.job.empty() ? from.file : absl::StrCat("jobs/", from.job.value());
}

// If the training dataset of the weights is no longer known, checks that the rows of weights belong to the nodes of
// the graph.
absl::Status CheckSaidNodes(const spec::TrainOptions& options, const std::map<std::string, std::string>& metadata,
                            const data::Graph& graph, std::string_view prefix) {
  const bool is_file = options.init_from.job.empty();
  if (SaysOtherNodes(metadata, graph)) {
    return RefuseRows(prefix,
                      absl::StrCat("each node has weights of its own, and those of ", SourceOf(options),
                                   " are of other nodes, or of these in another order; accepted: ",
                                   is_file ? "the job that made them (init_from.job), while its dataset is there: "
                                             "rows are then given to nodes by name"
                                           : "weights of a job whose dataset is there still"));
  }
  if (is_file || metadata.contains(kNamesKey)) return absl::OkStatus();
  return RefuseRows(
      prefix, absl::StrCat("each node has weights of its own, and the dataset of ", SourceOf(options),
                           " is there no more, so that nobody can tell which node a row is of; accepted: its exported "
                           "weights (init_from.file), whose rows are taken in the order of the dataset's nodes"));
}

// Moves each node's row to the node's place, in a file that MapNodeRows made. A node without a row in the file gets
// its row from the model (`tensors`). Returns text that ends the line about the weights. If MapNodeRows did not make
// the file, returns an empty string.
// Errors: InvalidArgument if the file refers to a row that it lacks.
absl::StatusOr<std::string> PlaceNodeRows(const nn::TensorSet& tensors, nn::SafetensorsFile& file) {
  const auto found = Find(file.tensors, kPlacesTensor);
  if (found == file.tensors.end()) return "";
  const at::Tensor places = found->value;
  file.tensors.erase(found);
  const auto table = Find(file.tensors, kRowsTensor);
  std::vector<NamedTensor> model = tensors.All();
  const auto own = Find(model, kRowsTensor);
  // If the weights do not fit, the caller reports it when it checks shapes.
  if (table == file.tensors.end() || own == model.end() || table->value.dim() != 2 ||
      own->value.size(1) != table->value.size(1) || own->value.scalar_type() != table->value.scalar_type() ||
      places.sizes() != at::IntArrayRef{own->value.size(0)}) {
    return "";
  }
  if (places.max().item<int64_t>() >= table->value.size(0)) {
    return absl::InvalidArgumentError(absl::StrCat("the weights have no row ", places.max().item<int64_t>(), " of the ",
                                                   table->value.size(0), " of ", AbslView(kRowsTensor)));
  }
  const at::Tensor to = places.ge(0).nonzero().squeeze(1);
  const int64_t nodes = places.size(0), known = to.size(0);
  if (own->value.is_meta()) {
    table->value = own->value;
  } else {
    const at::Tensor rows = own->value.detach().cpu().clone();
    rows.index_copy_(0, to, table->value.index_select(0, places.index_select(0, to)));
    table->value = rows;
  }
  return absl::StrCat("; ", known, " of ", nodes, " nodes begin with the row of the same name, ", nodes - known,
                      " with rows of their own");
}

}  // namespace

absl::StatusOr<std::optional<data::Categories>> CategoriesOfWeights(std::string_view file, std::string_view source) {
  const std::map<std::string, std::string> metadata = nn::ReadSafetensorsMetadata(file);
  const auto found = metadata.find(kCategoriesKey);
  if (found == metadata.end()) return std::optional<data::Categories>();
  absl::StatusOr<data::Categories> categories = data::CategoriesFromJson(found->second);
  if (categories.ok()) return std::optional(*std::move(categories));
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(source), ": __metadata__.", kCategoriesKey, ": ", categories.status().message()));
}

absl::Status TakeAllWeights(std::string_view file, std::string_view source, nn::TensorSet& tensors,
                            const std::vector<std::string>& zero_rows) {
  PF_ASSIGN_OR_RETURN(nn::SafetensorsFile decoded, Decode(file, source));
  for (NamedTensor& tensor : decoded.tensors) {
    if (std::ranges::find(zero_rows, tensor.name) == zero_rows.end() || tensor.value.dim() != 2) continue;
    tensor.value = at::cat({tensor.value, at::zeros({1, tensor.value.size(1)}, tensor.value.options())});
  }
  return CopyAll(Match(decoded.tensors, tensors.All()), source, /*hint=*/"");
}

absl::StatusOr<std::string> TakeWeights(std::string_view file, const spec::InitialWeights& how, nn::TensorSet& tensors,
                                        const std::optional<data::Categories>& own) {
  const std::string source = how.job.empty() ? how.file : absl::StrCat("jobs/", how.job.value());
  const std::string begins = absl::StrCat("begins with the weights of ", source, ": ");
  PF_ASSIGN_OR_RETURN(nn::SafetensorsFile decoded, Decode(file, source));
  PF_ASSIGN_OR_RETURN(const std::optional<data::Categories> known, CategoriesOfWeights(file, source));
  std::string of_categories;
  if (known && own) {
    PF_ASSIGN_OR_RETURN(const MovedRows moved, MoveRows(*known, *own, tensors.All(), decoded.tensors));
    of_categories = TellMoved(moved);
  } else if (HasEmbeddings(tensors)) {
    of_categories = absl::StrCat("; ", known ? "the dataset is of an older version and does" : "they do",
                                 " not say what categories stand for: their rows are taken as they stand");
  }
  PF_ASSIGN_OR_RETURN(const std::string node_rows, PlaceNodeRows(tensors, decoded));
  const Matches matches = Match(decoded.tensors, tensors.All());
  if (!how.by_name) {
    PF_RETURN_IF_ERROR(CopyAll(matches, source, " (by_name takes those that fit)"));
    return absl::StrCat(begins, matches.taken.size(), " tensors taken", of_categories, node_rows);
  }
  if (matches.taken.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("none of the ", decoded.tensors.size(), " tensors of ", source,
                                                   " fits the model by name and shape"));
  }
  Copy(matches);
  std::string line = absl::StrCat(begins, matches.taken.size(), " tensors taken, ", matches.left.size(), " left");
  if (!matches.left.empty()) absl::StrAppend(&line, " (", FirstOf(matches.left), ")");
  absl::StrAppend(&line, ", ", matches.missing.size(), " of the model missing");
  if (!matches.missing.empty()) absl::StrAppend(&line, " (", FirstOf(matches.missing), ")");
  return absl::StrCat(line, of_categories, node_rows);
}

absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                 std::string_view file, std::string_view prefix, const WeightsTarget& target) {
  std::optional<data::Categories> own;
  if (target.categories) own = CategoriesRead(options, summary, *target.categories);
  PF_RETURN_IF_ERROR(AsViolation(CheckTables(options, summary, file, target), prefix, "init_from"));
  return WithModel(options, summary, prefix, [&](nn::TensorSet& tensors) {
    return AsViolation(TakeWeights(file, options.init_from, tensors, own).status(), prefix, "init_from");
  });
}

absl::Status FixParameters(const spec::TrainOptions& options, std::string_view prefix, nn::TensorSet& tensors) {
  if (options.fixed_parameters.empty()) return absl::OkStatus();
  return AsViolation(tensors.Fix(options.fixed_parameters), prefix, "fixed_parameters");
}

absl::Status CheckFixedParameters(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                  std::string_view prefix) {
  if (options.fixed_parameters.empty()) return absl::OkStatus();
  return WithModel(options, summary, prefix,
                   [&](nn::TensorSet& tensors) { return FixParameters(options, prefix, tensors); });
}

bool HasNodeRows(const spec::TrainOptions& options, const data::OpenedDataset& dataset) {
  const data::Graph* const graph = GraphOf(dataset);
  if (graph == nullptr) return false;
  return Walks(options) || NodeInputsOf(options.model.node_inputs, graph->summary()) == spec::NodeInputs::kLearned;
}

std::map<std::string, std::string> NodeNamesMetadata(const spec::TrainOptions& options,
                                                     const data::OpenedDataset& dataset) {
  if (!HasNodeRows(options, dataset)) return {};
  return {{kNamesKey, HashHex(GraphOf(dataset)->names_checksum())}};
}

bool SaysOtherNodes(const std::map<std::string, std::string>& metadata, const data::Graph& graph) {
  const auto said = metadata.find(kNamesKey);
  return said != metadata.end() && said->second != HashHex(graph.names_checksum());
}

absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix) {
  if (!HasNodeRows(request.options, request.dataset)) return std::move(request.weights);
  absl::StatusOr<nn::SafetensorsFile> file = nn::DecodeSafetensors(request.weights);
  // CheckInitialWeights will report the fault of the file.
  if (!file.ok()) return std::move(request.weights);
  const auto table = Find(file->tensors, kRowsTensor);
  if (table == file->tensors.end() || table->value.dim() != 2) return std::move(request.weights);
  const data::Graph& graph = *GraphOf(request.dataset);
  const data::Graph* const trained = request.trained ? GraphOf(*request.trained) : nullptr;
  const auto places = Find(file->tensors, kPlacesTensor);
  const bool is_mapped = places != file->tensors.end();
  if (trained == nullptr) {
    PF_RETURN_IF_ERROR(CheckSaidNodes(request.options, file->metadata, graph, prefix));
    if (!is_mapped) return std::move(request.weights);
    // The weights were mapped for a dataset that has since been replaced, so the rows in kPlacesTensor are wrong for
    // the present dataset.
    file->tensors.erase(places);
    return nn::EncodeSafetensors(file->tensors, file->metadata);
  }
  const int64_t rows = table->value.size(0);
  if (!is_mapped && trained->view().nodes == graph.view().nodes &&
      trained->names_checksum() == graph.names_checksum()) {
    return std::move(request.weights);
  }
  // The weights come from a job without rows of nodes.
  if (std::cmp_not_equal(rows, trained->view().nodes)) return std::move(request.weights);
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> matched, data::MatchNames(*trained, graph));
  const auto known = std::ranges::count_if(matched, [](int64_t row) { return row != data::kNoRow; });
  if (known == 0) {
    return RefuseRows(prefix,
                      absl::StrCat("each node has weights of its own, and none of the dataset's ", matched.size(),
                                   " nodes has the name of one of the ", rows, " that ", SourceOf(request.options),
                                   " was trained on; accepted: a dataset that shares nodes with that one"));
  }
  if (is_mapped) file->tensors.erase(places);
  file->tensors.push_back({std::string(kPlacesTensor), at::tensor(matched, at::kLong)});
  return nn::EncodeSafetensors(file->tensors, file->metadata);
}

}  // namespace permafrost::train
