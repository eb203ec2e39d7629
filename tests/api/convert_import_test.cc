#include "api/wire/convert_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/catalog/catalog.h"

namespace permafrost::api {
namespace {

v1::ImportDatasetRequest MinimalImport() {
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options()->set_source_path("/data/zinc");
  return request;
}

TEST(ImportRequestFromWire, ZerosAreTheDefaultsOfTheDomain) {
  const auto got = ImportRequestFromWire(MinimalImport());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->id, DatasetId("zinc"));
  EXPECT_EQ(got->options.source, "/data/zinc");
  EXPECT_EQ(got->options.format, data::ImportFormat::kAuto);
  EXPECT_EQ(got->options.inverse_edges, data::InverseEdges::kAuto);
  EXPECT_FALSE(got->options.coalesce);
  EXPECT_TRUE(got->options.keep_out_edges);
  EXPECT_EQ(got->options.split, "");
  EXPECT_EQ(got->options.split_seed, 0u);
  EXPECT_EQ(got->options.train_fraction, 0.8);
  EXPECT_EQ(got->options.valid_fraction, 0.1);
  EXPECT_EQ(got->options.edge_list, data::EdgeListOptions());
  EXPECT_EQ(got->options.memory_bytes, 0u);
}

TEST(ImportRequestFromWire, BothFormsOfKeepingEdgesAreReadAndMustNotContradict) {
  using Options = v1::ImportOptions;
  const struct {
    bool no_inverse_edges;
    Options::InverseEdges inverse_edges;
    std::optional<data::InverseEdges> want;  // nullopt: refused
  } kCases[] = {
      {false, Options::INVERSE_EDGES_UNSPECIFIED, data::InverseEdges::kAuto},
      {false, Options::INVERSE_EDGES_AUTO, data::InverseEdges::kAuto},
      {false, Options::INVERSE_EDGES_ADD, data::InverseEdges::kAdd},
      {false, Options::INVERSE_EDGES_KEEP, data::InverseEdges::kKeep},
      {true, Options::INVERSE_EDGES_UNSPECIFIED, data::InverseEdges::kKeep},
      {true, Options::INVERSE_EDGES_KEEP, data::InverseEdges::kKeep},
      {true, Options::INVERSE_EDGES_ADD, std::nullopt},
      {true, Options::INVERSE_EDGES_AUTO, std::nullopt},
  };
  for (const auto& c : kCases) {
    v1::ImportDatasetRequest request = MinimalImport();
    request.mutable_options()->set_no_inverse_edges(c.no_inverse_edges);
    request.mutable_options()->set_inverse_edges(c.inverse_edges);
    const auto got = ImportRequestFromWire(request);
    if (c.want) {
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->options.inverse_edges, *c.want);
      const v1::ImportOptions wire = ImportOptionsToWire(got->options);
      EXPECT_EQ(wire.no_inverse_edges(), *c.want == data::InverseEdges::kKeep) << "what older clients read";
      EXPECT_NE(wire.inverse_edges(), Options::INVERSE_EDGES_UNSPECIFIED);
    } else {
      EXPECT_THAT(std::string(got.status().message()),
                  ::testing::HasSubstr("options.no_inverse_edges: true stands beside inverse_edges "));
    }
  }
}

data::ImportOptions RoundTrip(const data::ImportOptions& options) {
  v1::ImportDatasetRequest request = MinimalImport();
  *request.mutable_options() = ImportOptionsToWire(options);
  const auto got = ImportRequestFromWire(request);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? got->options : data::ImportOptions();
}

// Each has its own default; 0 is a value like any other.
TEST(ImportOptions, AFractionAloneLeavesTheOtherItsDefault) {
  const struct {
    std::optional<double> train, valid;
    double want_train, want_valid;
  } kCases[] = {{0.6, std::nullopt, 0.6, 0.1}, {std::nullopt, 0.2, 0.8, 0.2}, {0.0, 0.0, 0, 0}, {0.5, 0.0, 0.5, 0},
                {0.0, std::nullopt, 0, 0.1},   {std::nullopt, 0.0, 0.8, 0}};
  for (const auto& c : kCases) {
    v1::ImportDatasetRequest request = MinimalImport();
    if (c.train) request.mutable_options()->set_train_fraction(*c.train);
    if (c.valid) request.mutable_options()->set_valid_fraction(*c.valid);
    const auto got = ImportRequestFromWire(request);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->options.train_fraction, c.want_train);
    EXPECT_EQ(got->options.valid_fraction, c.want_valid);
    const data::ImportOptions again = RoundTrip(got->options);
    EXPECT_EQ(again.train_fraction, c.want_train);
    EXPECT_EQ(again.valid_fraction, c.want_valid);
  }
}

TEST(ImportOptions, RoundTripEveryField) {
  data::ImportOptions options;
  options.source = "/s";
  options.format = data::ImportFormat::kEdgeList;
  options.inverse_edges = data::InverseEdges::kKeep;
  options.coalesce = true;
  options.keep_out_edges = false;
  options.split = "scaffold";
  options.split_seed = 7;
  options.train_fraction = 0.5;
  options.valid_fraction = 0;
  options.edge_list = {data::NodeIds::kRows,
                       {data::EdgeColumn::kTimestamp, data::EdgeColumn::kIgnore, data::EdgeColumn::kWeight},
                       data::Header::kYes,
                       '\t',
                       '%',
                       '\'',
                       1'000'000};
  options.tu = {.node_features = data::TuNodeFeatures::kDegree, .one_hot = true, .max_degree = 77};
  options.memory_bytes = uint64_t{512} << 20;
  const data::ImportOptions got = RoundTrip(options);
  EXPECT_EQ(got.source, "/s");
  EXPECT_EQ(got.format, data::ImportFormat::kEdgeList);
  EXPECT_EQ(got.inverse_edges, data::InverseEdges::kKeep);
  EXPECT_TRUE(got.coalesce);
  EXPECT_FALSE(got.keep_out_edges);
  EXPECT_EQ(got.split, "scaffold");
  EXPECT_EQ(got.split_seed, 7u);
  EXPECT_EQ(got.train_fraction, 0.5);
  EXPECT_EQ(got.valid_fraction, 0);
  EXPECT_EQ(got.edge_list, options.edge_list);
  EXPECT_EQ(got.tu, options.tu);
  EXPECT_EQ(got.memory_bytes, uint64_t{512} << 20);
}

TEST(ImportOptions, RoundTripEveryEnumValue) {
  data::ImportOptions options;
  options.source = "/s";
  for (const auto& [format, name] : data::kImportFormatNames.rows) {
    options.format = format;
    EXPECT_EQ(RoundTrip(options).format, format) << name;
  }
  for (const auto& [features, name] : data::kNodeFeatureChoiceNames.rows) {
    options.node_features = features;
    EXPECT_EQ(RoundTrip(options).node_features, features) << name;
  }
  options.node_features = data::NodeFeatureChoice::kAuto;
  for (const auto& [type, name] : data::kFeatureTypeNames.rows) {
    options.feature_type = type;
    EXPECT_EQ(RoundTrip(options).feature_type, type) << name;
  }
  for (const auto& [order, name] : data::kNodeOrderNames.rows) {
    options.order = order;
    EXPECT_EQ(RoundTrip(options).order, order) << name;
  }
  options.format = data::ImportFormat::kEdgeList;
  for (const auto& [node_ids, name] : data::kNodeIdsNames.rows) {
    options.edge_list.node_ids = node_ids;
    EXPECT_EQ(RoundTrip(options).edge_list.node_ids, node_ids) << name;
  }
  options.edge_list.node_ids = data::NodeIds::kRows;
  for (const auto& [header, name] : data::kHeaderNames.rows) {
    options.edge_list.header = header;
    EXPECT_EQ(RoundTrip(options).edge_list.header, header) << name;
  }
}

TEST(ImportOptions, NoCommentsAreSaidApartFromTheDefault) {
  data::ImportOptions options;
  options.source = "/s";
  options.edge_list.comment = '\0';
  EXPECT_EQ(RoundTrip(options).edge_list.comment, '\0');
  EXPECT_EQ(ImportRequestFromWire(MinimalImport())->options.edge_list.comment, '#');
}

// The bad fields of a request, whoever finds them: the conversion what the domain cannot hold, the catalog the rest.
absl::Status Refusal(const v1::ImportDatasetRequest& wire) {
  const auto request = ImportRequestFromWire(wire);
  return request.ok() ? data::CheckImport(request->id, request->options) : request.status();
}

TEST(ImportRequestFromWire, LeavesValuesToTheCatalog) {
  v1::ImportDatasetRequest request = MinimalImport();
  request.set_dataset_id("A/b");
  request.mutable_options()->set_train_fraction(-1);
  EXPECT_TRUE(ImportRequestFromWire(request).ok());
}

TEST(ImportRequestFromWire, NamesTheBadFields) {
  using Edit = std::function<void(v1::ImportDatasetRequest&)>;
  const struct {
    const char* why;
    Edit edit;
    std::vector<std::string> fields;
  } kCases[] = {
      {"no options", [](auto& r) { r.clear_options(); }, {"options"}},
      {"neither options nor a good id",
       [](auto& r) {
         r.clear_options();
         r.set_dataset_id("A/b");
       },
       {"options", "dataset_id"}},
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
      {"too much for the default of the other",
       [](auto& r) { r.mutable_options()->set_train_fraction(0.95); },
       {"options.valid_fraction"}},
      {"a format of a newer version",
       [](auto& r) { r.mutable_options()->set_format(static_cast<v1::ImportOptions::Format>(99)); },
       {"options.format"}},
      {"unknown ways to name nodes and columns",
       [](auto& r) {
         auto& edge_list = *r.mutable_options()->mutable_edge_list();
         edge_list.set_node_ids(static_cast<v1::EdgeListOptions::NodeIds>(99));
         edge_list.add_columns(v1::EdgeListOptions::COLUMN_WEIGHT);
         edge_list.add_columns(v1::EdgeListOptions::COLUMN_UNSPECIFIED);
         edge_list.add_columns(static_cast<v1::EdgeListOptions::Column>(99));
         edge_list.set_header(static_cast<v1::EdgeListOptions::Header>(99));
       },
       {"options.edge_list.node_ids", "options.edge_list.columns[1]", "options.edge_list.columns[2]",
        "options.edge_list.header"}},
      {"too many columns",
       [](auto& r) {
         for (int i = 0; i < 65; ++i)
           r.mutable_options()->mutable_edge_list()->add_columns(v1::EdgeListOptions::COLUMN_IGNORE);
       },
       {"options.edge_list.columns"}},
      {"two characters, and one that is none of ASCII",
       [](auto& r) {
         r.mutable_options()->mutable_edge_list()->set_delimiter("::");
         r.mutable_options()->mutable_edge_list()->set_comment("\xC2\xA7");
       },
       {"options.edge_list.delimiter", "options.edge_list.comment"}},
      {"a line's end within a line",
       [](auto& r) { r.mutable_options()->mutable_edge_list()->set_delimiter("\n"); },
       {"options.edge_list.delimiter"}},
      {"less than no memory", [](auto& r) { r.mutable_options()->set_memory_bytes(-1); }, {"options.memory_bytes"}},
      {"all at once, what cannot be read first",
       [](auto& r) {
         r.set_dataset_id("");
         r.mutable_options()->clear_source_path();
         r.mutable_options()->set_train_fraction(-1);
         r.mutable_options()->set_memory_bytes(-1);
       },
       {"options.memory_bytes", "dataset_id", "options.source_path", "options.train_fraction"}},
  };
  for (const auto& c : kCases) {
    v1::ImportDatasetRequest request = MinimalImport();
    c.edit(request);
    std::vector<std::string> fields;
    for (const auto& v : GetViolations(Refusal(request))) fields.push_back(v.field);
    EXPECT_EQ(fields, c.fields) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::api
