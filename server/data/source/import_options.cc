#include "data/source/import_options.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kLeastMemory = uint64_t{16} << 20;

void CheckSplit(const ImportOptions& options, Violations& violations) {
  if (options.split.find('/') != std::string::npos || options.split == "." || options.split == "..") {
    violations.Add("options.split", absl::StrCat(Quote(options.split), " is not the name of a folder in split/"));
  }
  bool fractions_hold = true;
  const auto check_fraction = [&](std::string_view field, double fraction) {
    // Written so that NaN is outside.
    if (fraction >= 0 && fraction <= 1) return;
    violations.Add(field, absl::StrCat(fraction, " is outside 0..1"));
    fractions_hold = false;
  };
  check_fraction("options.train_fraction", options.train_fraction);
  check_fraction("options.valid_fraction", options.valid_fraction);
  constexpr double kRounding = 1e-9;
  if (const double sum = options.train_fraction + options.valid_fraction; fractions_hold && sum > 1 + kRounding) {
    violations.Add(
        "options.valid_fraction",
        absl::StrCat(options.valid_fraction, " and options.train_fraction ", options.train_fraction, " make ", sum,
                     ", more than 1; accepted: both given, together at most 1 (each that is "
                     "not given is its default, ",
                     ImportOptions().train_fraction, " of train_fraction and ", ImportOptions().valid_fraction,
                     " of valid_fraction)"));
  }
}

void CheckEdgeList(const EdgeListOptions& edges, Violations& violations) {
  if (edges.num_nodes < 0 || static_cast<uint64_t>(edges.num_nodes) > kMaxNodes) {
    violations.Add("options.edge_list.num_nodes", absl::StrCat(edges.num_nodes, " is outside 0..", kMaxNodes));
  }
  const auto count_of = [&edges](EdgeColumn column) { return std::ranges::count(edges.columns, column); };
  for (const EdgeColumn column :
       {EdgeColumn::kSource, EdgeColumn::kTarget, EdgeColumn::kWeight, EdgeColumn::kTimestamp}) {
    const auto count = count_of(column);
    if (count <= 1) continue;
    violations.Add("options.edge_list.columns", absl::StrCat(AbslView(kEdgeColumnNames.Name(column)), " stands ", count,
                                                             " times; once at most is accepted"));
  }
  if ((count_of(EdgeColumn::kSource) > 0) != (count_of(EdgeColumn::kTarget) > 0)) {
    violations.Add("options.edge_list.columns",
                   "source and target stand there both, where all columns are named, or neither, where only those "
                   "after them are");
  }
  const auto refuse_same = [&](std::string_view field, char is, char other, std::string_view why) {
    if (is == '\0' || is != other) return;
    violations.Add(
        field, absl::StrCat(Quote(std::string_view(&is, 1)), " ", AbslView(why), "; another character is accepted"));
  };
  refuse_same("options.edge_list.delimiter", edges.delimiter, edges.comment, "begins comments");
  refuse_same("options.edge_list.quote", edges.quote, edges.delimiter, "stands between cells");
  refuse_same("options.edge_list.quote", edges.quote, edges.comment, "begins comments");
}

void CheckTu(const TuOptions& tu, Violations& violations) {
  const int64_t most = tu.one_hot ? 4095 : 999'999;
  if (tu.max_degree >= 1 && tu.max_degree <= most) return;
  violations.Add("options.tu.max_degree",
                 absl::StrCat(tu.max_degree, " is outside 1..", most, tu.one_hot ? ", one-hot" : ""));
}

}  // namespace

absl::Status CheckImportOptions(const ImportOptions& options) {
  Violations violations;
  if (options.source.empty()) violations.Add("options.source_path", "empty; name a file or a directory on the server");
  CheckSplit(options, violations);
  CheckEdgeList(options.edge_list, violations);
  CheckTu(options.tu, violations);
  CheckFormatOptions(options.format, options, violations);
  if (options.memory_bytes != 0 && options.memory_bytes < kLeastMemory) {
    violations.Add("options.memory_bytes",
                   absl::StrCat(options.memory_bytes, " is neither 0 nor at least ", kLeastMemory, " (16 MiB)"));
  }
  return violations.ToStatus();
}

uint64_t DefaultImportMemory() { return MemoryLimit() / 4; }

namespace {

using Format = ImportFormat;

struct FormatOption {
  std::string_view field;
  std::initializer_list<Format> used_by;
  bool (*differs)(const ImportOptions& options, const ImportOptions& defaults);
};

// A row differs where the option is not the default's.
template <auto member>
bool Differs(const ImportOptions& options, const ImportOptions& defaults) {
  return options.*member != defaults.*member;
}
template <auto member>
bool EdgeListDiffers(const ImportOptions& options, const ImportOptions& defaults) {
  return options.edge_list.*member != defaults.edge_list.*member;
}
template <auto member>
bool TuDiffers(const ImportOptions& options, const ImportOptions& defaults) {
  return options.tu.*member != defaults.tu.*member;
}
bool AddsInverses(const ImportOptions& options, const ImportOptions&) {
  return options.inverse_edges == InverseEdges::kAdd;
}

using O = ImportOptions;
using E = EdgeListOptions;

constexpr auto kGraphs = {Format::kOgbNodes, Format::kEdgeList, Format::kNpy};
constexpr auto kAllButTu = {Format::kOgbGraphs, Format::kOgbNodes, Format::kEdgeList, Format::kNpy};
constexpr auto kGraphsAndTu = {Format::kOgbNodes, Format::kEdgeList, Format::kNpy, Format::kTu};
constexpr auto kWithSplits = {Format::kOgbGraphs, Format::kOgbNodes, Format::kNpy, Format::kTu};
constexpr auto kOgb = {Format::kOgbGraphs, Format::kOgbNodes};
constexpr auto kOgbNodesAndNpy = {Format::kOgbNodes, Format::kNpy};
constexpr auto kOgbNodes = {Format::kOgbNodes};
constexpr auto kEdgeList = {Format::kEdgeList};
constexpr auto kEdgeListAndNpy = {Format::kEdgeList, Format::kNpy};
constexpr auto kTu = {Format::kTu};

const FormatOption kFormatOptions[] = {
    {"options.inverse_edges", kAllButTu, &AddsInverses},
    {"options.coalesce", kGraphsAndTu, &Differs<&O::coalesce>},
    {"options.no_out_edges", kGraphs, &Differs<&O::keep_out_edges>},
    {"options.node_features", kOgbNodes, &Differs<&O::node_features>},
    {"options.feature_type", kOgbNodesAndNpy, &Differs<&O::feature_type>},
    {"options.order", kGraphs, &Differs<&O::order>},
    {"options.split", kOgb, &Differs<&O::split>},
    {"options.split_seed", kWithSplits, &Differs<&O::split_seed>},
    {"options.train_fraction", kWithSplits, &Differs<&O::train_fraction>},
    {"options.valid_fraction", kWithSplits, &Differs<&O::valid_fraction>},
    {"options.memory_bytes", kGraphsAndTu, &Differs<&O::memory_bytes>},
    {"options.edge_list.node_ids", kEdgeList, &EdgeListDiffers<&E::node_ids>},
    {"options.edge_list.columns", kEdgeList, &EdgeListDiffers<&E::columns>},
    {"options.edge_list.header", kEdgeList, &EdgeListDiffers<&E::header>},
    {"options.edge_list.delimiter", kEdgeList, &EdgeListDiffers<&E::delimiter>},
    {"options.edge_list.comment", kEdgeList, &EdgeListDiffers<&E::comment>},
    {"options.edge_list.quote", kEdgeList, &EdgeListDiffers<&E::quote>},
    {"options.edge_list.num_nodes", kEdgeListAndNpy, &EdgeListDiffers<&E::num_nodes>},
    {"options.tu.node_features", kTu, &TuDiffers<&TuOptions::node_features>},
    {"options.tu.one_hot", kTu, &TuDiffers<&TuOptions::one_hot>},
    {"options.tu.max_degree", kTu, &TuDiffers<&TuOptions::max_degree>},
};

}  // namespace

void CheckFormatOptions(ImportFormat format, const ImportOptions& options, Violations& violations) {
  if (format == Format::kAuto) return;
  const ImportOptions defaults;
  for (const FormatOption& option : kFormatOptions) {
    if (std::ranges::find(option.used_by, format) != option.used_by.end()) continue;
    if (!option.differs(options, defaults)) continue;
    std::string formats;
    for (const Format used_by : option.used_by) {
      absl::StrAppend(&formats, formats.empty() ? "" : ", ", AbslView(kImportFormatNames.Name(used_by)));
    }
    violations.Add(option.field, absl::StrCat("the format ", AbslView(kImportFormatNames.Name(format)),
                                              " does not use it; accepted with ", formats));
  }
}

}  // namespace permafrost::data
