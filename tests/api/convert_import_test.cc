#include "api/wire/convert_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/catalog/catalog.h"
#include "data/catalog/imports.h"
#include "message_leaves.h"

namespace permafrost::api {
namespace {

v1::ImportDatasetRequest MinimalImport() {
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options()->set_source_path("/data/zinc");
  return request;
}

TEST(ImportRequestFromWire, WhatIsNotSetIsTheDomainsDefault) {
  const auto got = ImportRequestFromWire(MinimalImport());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->id, DatasetId("zinc"));
  EXPECT_EQ(got->options, data::ImportOptions{.source = "/data/zinc"});
}

TEST(ImportRequestFromWire, BothFormsOfKeepingEdgesAreReadAndMustNotContradict) {
  using Options = v1::ImportOptions;
  const struct {
    bool no_inverse_edges;
    Options::InverseEdges inverse_edges;
    std::optional<data::InverseEdges> want;  // null if refused
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

// Each fraction has its own default. 0 is a value like any other.
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

// A field of the contract without a row, or a row that a conversion drops, fails here by its name.
TEST(ImportOptions, EachIsReadToldAndKept) {
  data::ImportOptions options;
  options.source = "/s";
  v1::ImportOptions base = ImportOptionsToWire(options);
  base.clear_inverse_edges();  // the deprecated no_inverse_edges is refused beside it
  for (const Leaf& leaf : LeavesOf(v1::ImportOptions::descriptor())) {
    std::set<std::string> taken;
    std::vector<v1::ImportOptions> changes = ChangesOf(base, leaf);
    if (leaf.field()->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      v1::ImportOptions& one_character = changes.emplace_back(base);
      google::protobuf::Message& holder = leaf.MutableHolderIn(one_character);
      holder.GetReflection()->SetString(&holder, leaf.field(), ";");
    }
    for (const v1::ImportOptions& change : changes) {
      v1::ImportDatasetRequest request = MinimalImport();
      *request.mutable_options() = change;
      const auto read = ImportRequestFromWire(request);
      if (!read.ok()) continue;
      SCOPED_TRACE(leaf.name + ": " + leaf.Text(change));
      EXPECT_EQ(leaf.Text(ImportOptionsToWire(read->options)), leaf.Text(change));
      const auto record =
          data::RecordFromJson(data::RecordToJson({.create_time = absl::UnixEpoch(), .options = read->options}));
      ASSERT_TRUE(record.ok()) << record.status();
      EXPECT_EQ(record->options, read->options);
      taken.insert(leaf.Text(change));
    }
    // The first value of an enum stands for the default, which `base` already has.
    const auto* const type = leaf.field()->enum_type();
    EXPECT_GE(taken.size(), type == nullptr || leaf.field()->is_repeated() ? 1 : type->value_count() - 2) << leaf.name;
  }
}

TEST(ImportOptions, AnExplicitZeroIsNoDefault) {
  v1::ImportDatasetRequest request = MinimalImport();
  request.mutable_options()->mutable_tu()->set_max_degree(0);
  const auto read = ImportRequestFromWire(request);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(data::CheckImport(read->id, read->options).message(), "options.tu.max_degree: 0 is outside 1..999999");
}

TEST(ImportOptions, NoCommentsAreSaidApartFromTheDefault) {
  data::ImportOptions options;
  options.source = "/s";
  options.edge_list.comment = '\0';
  EXPECT_EQ(RoundTrip(options).edge_list.comment, '\0');
  EXPECT_EQ(ImportRequestFromWire(MinimalImport())->options.edge_list.comment, '#');
}

// Returns the refusal of a request. The conversion refuses what the domain cannot hold, and the catalog the rest.
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
         r.mutable_options()->mutable_edge_list()->set_quote("::");
       },
       {"options.edge_list.quote", "dataset_id", "options.source_path", "options.train_fraction",
        "options.memory_bytes"}},
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
