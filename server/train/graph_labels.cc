#include "train/graph_labels.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// More classes than this are a measure, not a class.
constexpr double kMaxGraphClasses = 1'000'000;

int64_t ClassesOf(const TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
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

}  // namespace

int64_t OutputsFor(const TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                   Violations& violations) {
  if (summary.num_targets < 1) {
    violations.Add(absl::StrCat(AbslView(prefix), "dataset"), "has no labels; at least one target column is needed");
    return 1;
  }
  if (options.loss == nn::Loss::kCrossEntropy) return ClassesOf(options, summary, prefix, violations);
  return summary.num_targets;
}

absl::Status CheckTrainLabels(const data::GraphSet& set, std::string_view prefix) {
  PF_ASSIGN_OR_RETURN(const auto graphs, set.split(data::Split::kTrain));
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto targets = static_cast<size_t>(set.summary().num_targets);
  const bool labelled = std::ranges::any_of(graphs, [&](uint32_t graph) {
    // Whether the file is as it was is known only below.
    if (graph >= labels.size() / std::max<size_t>(targets, 1)) return false;
    return std::ranges::any_of(labels.subspan(graph * targets, targets), [](float l) { return !std::isnan(l); });
  });
  PF_RETURN_IF_ERROR(set.CheckIntact());
  if (labelled) return absl::OkStatus();
  Violations violations;
  violations.Add(
      absl::StrCat(AbslView(prefix), "dataset"),
      absl::StrCat("none of the ", graphs.size(), " graphs of its train split has a label; at least one is needed"));
  return violations.ToStatus();
}

const data::SizeStatistics& TrainSizes(const TrainOptions& options, const data::GraphSetSummary& summary,
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
