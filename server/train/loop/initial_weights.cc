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
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "nn/safetensors.h"
#include "train/tasks/categories.h"
#include "train/tasks/graph_model_for.h"
#include "train/tasks/node2vec_task.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_rows.h"
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

// "head.0.weight, head.0.bias and 3 more"
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMost) absl::StrAppend(&text, " and ", names.size() - kMost, " more");
  return text;
}

struct Matches {
  std::vector<std::pair<at::Tensor, at::Tensor>> taken;  // from, to
  std::vector<std::string> left, missing;                // of the file; of the model
  // For strict loading: one entry for each tensor that is left or missing, saying why. A tensor whose shape differs has
  // one entry.
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

// hint: what ends the error of tensors that differ.
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

// The model of a job, for its names and shapes: its tensors have no values, and take no memory.
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

// Where weights are known to be of another dataset, they and the job's dataset must both say what their categories
// stand for.
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

}  // namespace permafrost::train
