#include "api/wire/convert_dataset.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>

namespace permafrost::api {
namespace {

TEST(DatasetToWire, CarriesEveryField) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  dataset.state = data::DatasetState::kReady;
  dataset.create_time = absl::FromUnixSeconds(9);
  data::GraphSetSummary summary;
  summary.all = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5};
  summary.splits[0].graphs = 10;
  summary.splits[1].graphs = 11;
  summary.splits[2].graphs = 12;
  summary.node_features = {data::DataType::kInt32, 2, {0, 1}, {27, 3}};
  summary.edge_features = {data::DataType::kFloat32, 1, {-1.5}, {1.5}};
  summary.position_columns = 3;
  summary.num_targets = 13;
  summary.num_missing_labels = 14;
  summary.store_bytes = 15;
  summary.split_name = "scaffold";
  summary.inverse_edges_added = true;
  summary.labels_known = summary.integer_labels = true;
  summary.min_label = -2;
  summary.max_label = 17;
  summary.class_values = {-1, 1};
  summary.node_feature_origin = "labels from 3";
  summary.edge_feature_origin = "attributes";
  summary.duplicate_edges = 18;
  summary.notes = {"first", "second"};
  dataset.summary = summary;
  v1::Dataset want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "datasets/zinc"
        state: STATE_READY
        create_time { seconds: 9 }
        graph_set {
          all {
            num_graphs: 1
            num_nodes: 2
            num_edges: 3
            mean_nodes: 4
            std_nodes: 5
            mean_edges: 6
            std_edges: 7
            max_nodes: 8
            max_edges: 9
            node_edge_correlation: 0.5
          }
          train { num_graphs: 10 }
          valid { num_graphs: 11 }
          test { num_graphs: 12 }
          node_features { data_type: DATA_TYPE_INT32 width: 2 min: 0 min: 1 max: 27 max: 3 }
          edge_features { data_type: DATA_TYPE_FLOAT32 width: 1 min: -1.5 max: 1.5 }
          num_targets: 13
          num_missing_labels: 14
          store_bytes: 15
          split: "scaffold"
          inverse_edges_added: true
          min_label: -2
          max_label: 17
          integer_labels: true
          class_values: -1
          class_values: 1
          node_feature_origin: "labels from 3"
          edge_feature_origin: "attributes"
          num_duplicate_edges: 18
          position_columns: 3
        }
        import_notes: "first"
        import_notes: "second"
      )pb",
      &want));
  v1::Dataset got = DatasetToWire(dataset);
  got.clear_import_options();
  EXPECT_EQ(got.DebugString(), want.DebugString());
}

TEST(DatasetToWire, CarriesEveryFieldOfALargeGraph) {
  data::GraphSummary summary;
  summary.nodes = 1;
  summary.edges = 2;
  summary.symmetric = summary.inverse_edges_added = summary.weighted = summary.timestamped = summary.named = true;
  summary.order = data::NodeOrder::kCommunity;
  summary.self_loops = 3;
  summary.isolated_nodes = 4;
  summary.max_degree = 5;
  summary.duplicate_edges = 6;
  summary.notes = {"only"};
  summary.node_features = {data::DataType::kSparse, 4005, {0}, {1}};
  summary.edge_features = {data::DataType::kFloat16, 1, {-1.5}, {1.5}};
  summary.edge_features.converted_from = data::DataType::kInt64;
  summary.edge_features.largest_error = 0.5;
  summary.edge_features.rms_error = 0.25;
  summary.node_feature_nonzeros = 7;
  summary.position_columns = 3;
  summary.num_targets = 8;
  summary.num_missing_labels = 9;
  summary.min_label = -1;
  summary.max_label = 10;
  summary.integer_labels = true;
  summary.split_nodes = {11, 12, 13};
  summary.split_name = "public";
  summary.links = {.given = true, .parts = {{{16, 0, 0}, {17, 18, 0}, {19, 0, 20}}}};
  summary.adjacency_bytes = 14;
  summary.store_bytes = 15;
  data::Dataset dataset;
  dataset.id = DatasetId("git");
  dataset.state = data::DatasetState::kReady;
  dataset.summary = summary;
  v1::Dataset want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        num_nodes: 1
        num_edges: 2
        symmetric: true
        inverse_edges_added: true
        weighted: true
        timestamped: true
        named: true
        order: ORDER_COMMUNITY
        num_self_loops: 3
        num_isolated_nodes: 4
        max_degree: 5
        num_duplicate_edges: 6
        node_features { data_type: DATA_TYPE_SPARSE width: 4005 min: 0 max: 1 }
        edge_features {
          data_type: DATA_TYPE_FLOAT16
          width: 1
          min: -1.5
          max: 1.5
          converted_from: DATA_TYPE_INT64
          largest_error: 0.5
          rms_error: 0.25
        }
        node_feature_nonzeros: 7
        position_columns: 3
        num_targets: 8
        num_missing_labels: 9
        min_label: -1
        max_label: 10
        integer_labels: true
        num_train_nodes: 11
        num_valid_nodes: 12
        num_test_nodes: 13
        split: "public"
        adjacency_bytes: 14
        store_bytes: 15
        links { num_train: 16 num_valid: 17 num_test: 19 valid_negatives: 18 test_negative_pairs: 20 }
      )pb",
      want.mutable_graph()));
  EXPECT_EQ(DatasetToWire(dataset).graph().DebugString(), want.graph().DebugString());
}

TEST(DatasetToWire, EveryDataTypeHasItsOwn) {
  std::set<int> seen;
  for (const auto& [type, name] : data::kDataTypeNames.rows) {
    data::Dataset dataset;
    data::GraphSummary summary;
    summary.node_features.type = type;
    dataset.summary = summary;
    const int wire = DatasetToWire(dataset).graph().node_features().data_type();
    EXPECT_TRUE(seen.insert(wire).second) << name;
    EXPECT_EQ(wire == v1::FeatureSummary::DATA_TYPE_UNSPECIFIED, type == data::DataType::kNone) << name;
  }
}

TEST(DatasetToWire, TellsProgressOnlyWhileImporting) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  dataset.progress = {"raw/edge.csv.gz", 5, 10};
  v1::Dataset wire = DatasetToWire(dataset);
  EXPECT_EQ(wire.state(), v1::Dataset::STATE_IMPORTING);
  EXPECT_EQ(wire.import_progress().current_file(), "raw/edge.csv.gz");
  EXPECT_EQ(wire.import_progress().bytes_read(), 5);
  EXPECT_EQ(wire.import_progress().bytes_total(), 10);
  EXPECT_FALSE(wire.has_retry_time());
  dataset.last_error = "/state: No space left on device";
  dataset.retry_time = absl::FromUnixSeconds(11);
  wire = DatasetToWire(dataset);
  EXPECT_EQ(wire.last_error(), "/state: No space left on device");
  EXPECT_EQ(wire.retry_time().seconds(), 11);
  dataset.last_error.clear();
  dataset.state = data::DatasetState::kFailed;
  dataset.error = "raw/edge.csv.gz:3: ragged";
  wire = DatasetToWire(dataset);
  EXPECT_EQ(wire.state(), v1::Dataset::STATE_FAILED);
  EXPECT_FALSE(wire.has_import_progress());
  EXPECT_EQ(wire.summary_case(), v1::Dataset::SUMMARY_NOT_SET);
  EXPECT_EQ(wire.error(), "raw/edge.csv.gz:3: ragged");
}

}  // namespace
}  // namespace permafrost::api
