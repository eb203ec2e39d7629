#include "data/source/format_options.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::data {
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
