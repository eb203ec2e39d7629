#include "train/graph_labels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// More classes than this are a measure, not a class.
constexpr double kMaxGraphClasses = 1'000'000;

int64_t ClassesOf(const spec::TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                  Violations& violations) {
  const auto add = [&](std::string_view field, std::string_view what) {
    violations.Add(absl::StrCat(AbslView(prefix), AbslView(field)), what);
    return int64_t{1};
  };
  if (summary.num_targets > 1) {
    return add("loss", absl::StrCat("cross-entropy takes one class a graph, and the dataset has ", summary.num_targets,
                                    " targets; use bce, mse or l1"));
  }
  if (!summary.labels_known) {
    return add("dataset",
               "was imported by an older version, which did not say whether its labels are classes; import it again");
  }
  if (!summary.integer_labels || summary.min_label < 0 || summary.max_label >= kMaxGraphClasses) {
    return add("loss", absl::StrCat("cross-entropy takes whole numbers 0..", kMaxGraphClasses - 1,
                                    " as labels, and the dataset's are ", summary.integer_labels ? "" : "fractions in ",
                                    summary.min_label, "..", summary.max_label));
  }
  // A class that no graph of the set has counts where the source's numbers leave it out.
  const auto classes = static_cast<int64_t>(summary.max_label) + 1;
  if (!options.class_weights.empty() && std::ssize(options.class_weights) != classes) {
    return add("class_weights",
               absl::StrCat("has ", options.class_weights.size(), " weights; the dataset has ", classes, " classes"));
  }
  return classes;
}

// Stores of older versions do not say; CheckBinary reads their labels.
void CheckBinaryRange(const data::GraphSetSummary& summary, std::string_view prefix, Violations& violations) {
  const bool any = summary.num_missing_labels < summary.all.graphs * summary.num_targets;
  if (!summary.labels_known || !any) return;
  if (summary.integer_labels && summary.min_label >= 0 && summary.max_label <= 1) return;
  violations.Add(
      absl::StrCat(AbslView(prefix), "loss"),
      absl::StrCat("bce takes labels 0 and 1, and the dataset's are ", summary.integer_labels ? "" : "fractions in ",
                   summary.min_label, "..", summary.max_label));
}

absl::Status NoTrainLabels(size_t rows, std::string_view what, std::string_view prefix) {
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "dataset"),
                 absl::StrCat("none of the ", rows, " ", AbslView(what),
                              " of its train split has a label; at least one is needed"));
  return violations.ToStatus();
}

bool AnyLabel(std::span<const float> labels) {
  return std::ranges::any_of(labels, [](float label) { return !std::isnan(label); });
}

}  // namespace

int64_t OutputsFor(const spec::TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                   Violations& violations) {
  if (summary.num_targets < 1) {
    violations.Add(absl::StrCat(AbslView(prefix), "dataset"), "has no labels; at least one target column is needed");
    return 1;
  }
  const spec::LabelKind labels = spec::TraitsOf(options.loss).labels;
  if (labels == spec::LabelKind::kClass) return ClassesOf(options, summary, prefix, violations);
  if (labels == spec::LabelKind::kBinary) CheckBinaryRange(summary, prefix, violations);
  return summary.num_targets;
}

absl::Status CheckTrainLabels(const data::GraphSet& set, std::string_view prefix) {
  PF_ASSIGN_OR_RETURN(const auto graphs, set.split(data::Split::kTrain));
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto targets = static_cast<size_t>(set.summary().num_targets);
  const bool labelled = std::ranges::any_of(graphs, [&](uint32_t graph) {
    // The check below finds out whether the file is as it was.
    if (graph >= labels.size() / std::max<size_t>(targets, 1)) return false;
    return AnyLabel(labels.subspan(graph * targets, targets));
  });
  PF_RETURN_IF_ERROR(set.CheckIntact());
  return labelled ? absl::OkStatus() : NoTrainLabels(graphs.size(), "graphs", prefix);
}

absl::Status CheckTrainLabels(const data::Graph& graph, std::string_view prefix) {
  const data::Column<data::NodeId>& nodes = graph.view().splits[static_cast<size_t>(data::Split::kTrain)];
  const data::Column<float>& labels = graph.view().labels;
  const auto targets = static_cast<uint64_t>(graph.view().num_targets);
  if (!nodes.Touch(0, nodes.size())) return nodes.status();
  bool labelled = false;
  for (uint64_t i = 0; i < nodes.size() && !labelled; ++i) {
    const uint64_t begin = uint64_t{nodes[i]} * targets;
    // Absent, or of a file that changed, which is told below.
    if (begin + targets > labels.size()) continue;
    if (!labels.Touch(begin, begin + targets)) return labels.status();
    labelled = AnyLabel({labels.data() + begin, targets});
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return labelled ? absl::OkStatus() : NoTrainLabels(nodes.size(), "nodes", prefix);
}

absl::Status CheckBinary(const data::GraphSet& set, std::string_view prefix) {
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto other = std::ranges::find_if(labels, [](float l) { return !std::isnan(l) && l != 0 && l != 1; });
  if (other == labels.end()) return absl::OkStatus();
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "loss"),
                 absl::StrCat("bce takes labels 0 and 1, and graph ",
                              (other - labels.begin()) / set.summary().num_targets, " has ", *other));
  return violations.ToStatus();
}

std::string NoteOfNoValidation(std::string_view rows) {
  return absl::StrCat(
      "the job has no ", AbslView(rows),
      " to validate on: its validation loss and metrics are nan, and the last epoch counts as the best");
}

const data::SizeStatistics& TrainSizes(const spec::TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations) {
  const int64_t folds = options.cross_validation.folds;
  if (folds == 0) return summary.splits[static_cast<size_t>(data::Split::kTrain)];
  if (folds > summary.all.graphs) {
    violations.Add(absl::StrCat(AbslView(prefix), "cross_validation.folds"),
                   absl::StrCat(folds, " is more than the ", summary.all.graphs, " graphs of the dataset"));
  }
  return summary.all;
}

}  // namespace permafrost::train
