#include "data/source/import_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

std::string Told(ImportFormat format, const ImportOptions& options) {
  Violations violations;
  spec::CheckImportFormat(format, options, violations);
  return std::string(violations.ToStatus().message());
}

TEST(FormatOptions, AnOptionThatTheFormatDoesNotUseIsRefused) {
  const struct {
    ImportFormat format;
    ImportOptions options;
    const char* told;
  } kCases[] = {
      {ImportFormat::kNpy,
       {.edge_list = {.node_ids = NodeIds::kText}},
       "options.edge_list.node_ids: the format npy does not use it; accepted with edge-list"},
      {ImportFormat::kNpy, {.edge_list = {.num_nodes = 5}}, ""},
      {ImportFormat::kOgbGraphs,
       {.coalesce = true},
       "options.coalesce: the format ogb-graphs does not use it; accepted with ogb-nodes, edge-list, npy, tu"},
      {ImportFormat::kTu, {.coalesce = true}, ""},
      {ImportFormat::kEdgeList,
       {.split = "time"},
       "options.split: the format edge-list does not use it; accepted with ogb-graphs, ogb-nodes"},
      {ImportFormat::kEdgeList, {.split_seed = 3}, "options.split_seed: the format edge-list does not use it"},
      {ImportFormat::kNpy, {.split = "time"}, "options.split: the format npy does not use it"},
      {ImportFormat::kTu, {.split = "time"}, "options.split: the format tu does not use it"},
      {ImportFormat::kTu, {.inverse_edges = InverseEdges::kAdd}, "options.inverse_edges: the format tu does not"},
      {ImportFormat::kTu, {.inverse_edges = InverseEdges::kKeep}, ""},
      {ImportFormat::kOgbGraphs, {.keep_out_edges = false}, "options.no_out_edges: the format ogb-graphs does not"},
      {ImportFormat::kNpy, {.node_features = NodeFeatureChoice::kDense}, "options.node_features: the format npy does"},
      {ImportFormat::kOgbNodes, {.tu = {.one_hot = true}}, "options.tu.one_hot: the format ogb-nodes does not use it"},
      {ImportFormat::kOgbGraphs, {.order = NodeOrder::kDegree}, "options.order: the format ogb-graphs does not"},
      {ImportFormat::kTu, {.feature_type = FeatureType::kInt8}, "options.feature_type: the format tu does not"},
      {ImportFormat::kStore,
       {.inverse_edges = InverseEdges::kKeep},
       "options.inverse_edges: the format store does not use it; accepted with ogb-graphs, ogb-nodes, edge-list, npy, "
       "tu"},
      {ImportFormat::kStore, {.coalesce = true}, "options.coalesce: the format store does not use it"},
      {ImportFormat::kStore, {.split_seed = 3}, "options.split_seed: the format store does not use it"},
      {ImportFormat::kStore, {.memory_bytes = 1 << 30}, "options.memory_bytes: the format store does not use it"},
      {ImportFormat::kStore, {}, ""},
      {ImportFormat::kAuto, {.coalesce = true, .split = "time"}, ""},
  };
  for (const auto& c : kCases) {
    const std::string told = Told(c.format, c.options);
    if (*c.told == '\0') {
      EXPECT_EQ(told, "");
    } else {
      EXPECT_THAT(told, HasSubstr(c.told));
    }
  }
}

TEST(FormatOptions, OfTheFormatThatIsFoundToo) {
  TempDir temp;
  WriteText(temp.path() / "edges.csv", "0,1\n");
  ImportOptions options{.source = temp.path() / "edges.csv", .split = "time"};
  EXPECT_TRUE(CheckImportOptions(options).ok()) << "the format is not known yet";
  EXPECT_THAT(std::string(ImportGraphInto(temp.path() / "store", options).status().message()),
              HasSubstr("options.split: the format edge-list does not use it"));
  options.format = ImportFormat::kEdgeList;
  EXPECT_THAT(std::string(CheckImportOptions(options).message()), HasSubstr("options.split: the format edge-list"));
}

}  // namespace
}  // namespace permafrost::data
