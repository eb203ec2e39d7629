#include "data/import/known_names.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/store/types.h"

namespace permafrost::data {
namespace {

using Endings = std::vector<std::string_view>;

const Endings& OfText() {
  static const auto& endings = *new Endings{".csv", ".csv.gz", ".csv.zst"};
  return endings;
}
const Endings& OfTextOrArray() {
  static const auto& endings = *new Endings{".csv", ".csv.gz", ".csv.zst", ".npy"};
  return endings;
}

void AddNames(std::string_view folder, std::initializer_list<std::string_view> names, const Endings& endings,
              std::vector<KnownName>& known) {
  for (const std::string_view name : names) {
    const std::string stem = absl::StrCat(AbslView(folder), AbslView(name));
    known.push_back({.stem = stem, .endings = endings, .table = stem});
  }
}

void AddSplit(std::string_view split, bool or_masks, std::vector<KnownName>& known) {
  if (split.empty()) return;
  for (const auto& [kind, name] : kSplitNames.rows) {
    const std::string stem = absl::StrCat("split/", AbslView(split), "/", AbslView(name));
    known.push_back({.stem = stem, .endings = OfText(), .table = stem});
    if (or_masks) known.push_back({.stem = absl::StrCat(stem, "_mask"), .endings = OfText(), .table = stem});
  }
}

// One table in two forms: an array of numbers, and text.
void AddNodeNames(std::string_view ids, std::string_view names, std::vector<KnownName>& known) {
  known.push_back({.stem = std::string(ids), .endings = {".npy"}, .table = std::string(names)});
  known.push_back({.stem = std::string(names), .endings = OfText(), .table = std::string(names)});
}

void AddLinks(std::vector<KnownName>& known) {
  AddNames("split/links/", {"train", "valid", "test", "valid_negatives", "test_negatives"}, {".npy"}, known);
}

}  // namespace

std::vector<KnownName> OgbGraphsNames(std::string_view split) {
  std::vector<KnownName> known;
  AddNames("raw/", {"num-node-list", "num-edge-list", "edge", "graph-label", "node-feat", "edge-feat"}, OfText(),
           known);
  AddSplit(split, /*or_masks=*/false, known);
  return known;
}

std::vector<KnownName> OgbNodesNames(std::string_view split) {
  std::vector<KnownName> known;
  // By the last one a set is told from one graph.
  AddNames("raw/", {"num-node-list", "num-edge-list", "edge", "graph-label"}, OfText(), known);
  AddNames("raw/", {"node-feat", "node-label", "edge-weight", "edge-feat"}, OfTextOrArray(), known);
  // Distributed sets hold both, made of the same values; the archive is read.
  AddNames("raw/", {"node-feat-sparse"}, OfText(), known);
  known.push_back({.stem = "raw/node-feat-sparse", .endings = {".npz"}, .table = "raw/node-feat-sparse.npz"});
  AddNodeNames("raw/node-ids", "raw/node-names", known);
  AddSplit(split, /*or_masks=*/true, known);
  AddLinks(known);
  return known;
}

std::vector<KnownName> NpyNames() {
  std::vector<KnownName> known;
  AddNames("", {"edge_index", "edge_weight", "edge_time", "edge_feat", "node_label", "node_time"}, {".npy"}, known);
  AddNames("", {"adj"}, {".npz"}, known);
  AddNodeNames("node_ids", "node_names", known);
  known.push_back({.stem = "node_feat", .endings = {".npy", ".npz"}, .table = "node_feat"});
  known.push_back({.stem = "node_feat_bf16", .endings = {".npy"}, .table = "node_feat"});
  for (const auto& [kind, name] : kSplitNames.rows) {
    for (const std::string_view form : {"_idx", "_mask"}) {
      known.push_back(
          {.stem = absl::StrCat(AbslView(name), AbslView(form)), .endings = {".npy"}, .table = std::string(name)});
    }
  }
  AddLinks(known);
  return known;
}

std::vector<KnownName> TuNames(std::string_view stem) {
  std::vector<KnownName> known;
  // A stem with a dot has no known names, since the text after the dot is taken for an ending.
  if (stem.find('.', stem.rfind('/') + 1) != stem.npos) return known;
  AddNames(absl::StrCat(AbslView(stem), "_"),
           {"A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels",
            "edge_attributes"},
           {".txt"}, known);
  return known;
}

}  // namespace permafrost::data
