#include "train/tasks/node_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/graph.h"
#include "train/tasks/node_features.h"

namespace permafrost::train {
namespace {

using nn::NamedTensor;

// The table of rows, of node2vec and of learned inputs alike.
constexpr std::string_view kRowsTensor = "embedding.weight";
// Beside it in a file for one job: for each node of its dataset the row of the table, or kNoRow. [nodes] int64.
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

// Checks, for weights whose dataset is not known any more, that their rows are those of the graph.
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

}  // namespace

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
  // CheckInitialWeights says what is wrong with it.
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
    // They were mapped for a dataset that has been replaced since, and its places are not this one's.
    file->tensors.erase(places);
    return nn::EncodeSafetensors(file->tensors, file->metadata);
  }
  const int64_t rows = table->value.size(0);
  if (!is_mapped && trained->view().nodes == graph.view().nodes &&
      trained->names_checksum() == graph.names_checksum()) {
    return std::move(request.weights);
  }
  // Weights of a job that has no rows of nodes itself.
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

absl::StatusOr<std::string> PlaceNodeRows(const nn::TensorSet& tensors, nn::SafetensorsFile& file) {
  const auto found = Find(file.tensors, kPlacesTensor);
  if (found == file.tensors.end()) return "";
  const at::Tensor places = found->value;
  file.tensors.erase(found);
  const auto table = Find(file.tensors, kRowsTensor);
  std::vector<NamedTensor> model = tensors.All();
  const auto own = Find(model, kRowsTensor);
  // The caller's check of the shapes reports weights that do not fit.
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

}  // namespace permafrost::train
