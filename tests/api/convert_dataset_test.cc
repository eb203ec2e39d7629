#include "api/convert_dataset.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/status.h"

namespace permafrost::api {
namespace {

v1::ImportDatasetRequest Minimal() {
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options()->set_source_path("/data/zinc");
  return request;
}

TEST(ImportRequestFromWire, ZerosAreTheDefaultsOfTheDomain) {
  const auto got = ImportRequestFromWire(Minimal());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->id, DatasetId("zinc"));
  EXPECT_EQ(got->options.source, "/data/zinc");
  EXPECT_TRUE(got->options.add_inverse_edges);
  EXPECT_EQ(got->options.split, "");
  EXPECT_EQ(got->options.split_seed, 0u);
  EXPECT_EQ(got->options.train_fraction, 0.8);
  EXPECT_EQ(got->options.valid_fraction, 0.1);
}

TEST(ImportOptions, RoundTripEveryField) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  dataset.options = {.source = "/s",
                     .add_inverse_edges = false,
                     .split = "scaffold",
                     .split_seed = 7,
                     .train_fraction = 0.5,
                     .valid_fraction = 0};
  v1::ImportDatasetRequest request = Minimal();
  *request.mutable_options() = DatasetToWire(dataset).import_options();
  const auto got = ImportRequestFromWire(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->options.source, "/s");
  EXPECT_FALSE(got->options.add_inverse_edges);
  EXPECT_EQ(got->options.split, "scaffold");
  EXPECT_EQ(got->options.split_seed, 7u);
  EXPECT_EQ(got->options.train_fraction, 0.5);
  EXPECT_EQ(got->options.valid_fraction, 0);
}

TEST(ImportRequestFromWire, NamesTheBadFields) {
  using Edit = std::function<void(v1::ImportDatasetRequest&)>;
  const struct {
    const char* why;
    Edit edit;
    std::vector<std::string> fields;
  } kCases[] = {
      {"no options", [](auto& r) { r.clear_options(); }, {"options"}},
      {"no path", [](auto& r) { r.mutable_options()->clear_source_path(); }, {"options.source_path"}},
      {"bad id", [](auto& r) { r.set_dataset_id("A/b"); }, {"dataset_id"}},
      {"negative", [](auto& r) { r.mutable_options()->set_train_fraction(-0.1); }, {"options.train_fraction"}},
      {"NaN", [](auto& r) { r.mutable_options()->set_valid_fraction(std::nan("")); }, {"options.valid_fraction"}},
      {"above 1 together",
       [](auto& r) {
         r.mutable_options()->set_train_fraction(0.8);
         r.mutable_options()->set_valid_fraction(0.3);
       },
       {"options.valid_fraction"}},
      {"all at once",
       [](auto& r) {
         r.set_dataset_id("");
         r.mutable_options()->clear_source_path();
         r.mutable_options()->set_train_fraction(-1);
       },
       {"dataset_id", "options.source_path", "options.train_fraction"}},
  };
  for (const auto& c : kCases) {
    v1::ImportDatasetRequest request = Minimal();
    c.edit(request);
    std::vector<std::string> fields;
    for (const auto& v : GetViolations(ImportRequestFromWire(request).status())) fields.push_back(v.field);
    EXPECT_EQ(fields, c.fields) << c.why;
  }
}

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
  summary.num_targets = 13;
  summary.num_missing_labels = 14;
  summary.store_bytes = 15;
  summary.split_name = "scaffold";
  summary.inverse_edges_added = true;
  dataset.summary = summary;
  v1::Dataset want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "datasets/zinc"
        state: STATE_READY
        create_time { seconds: 9 }
        summary {
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
        }
      )pb",
      &want));
  v1::Dataset got = DatasetToWire(dataset);
  got.clear_import_options();
  EXPECT_EQ(got.DebugString(), want.DebugString());
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
  dataset.state = data::DatasetState::kFailed;
  dataset.error = "raw/edge.csv.gz:3: ragged";
  wire = DatasetToWire(dataset);
  EXPECT_EQ(wire.state(), v1::Dataset::STATE_FAILED);
  EXPECT_FALSE(wire.has_import_progress());
  EXPECT_FALSE(wire.has_summary());
  EXPECT_EQ(wire.error(), "raw/edge.csv.gz:3: ragged");
}

}  // namespace
}  // namespace permafrost::api
