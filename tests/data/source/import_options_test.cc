#include "data/source/import_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

TEST(ImportOptions, WhatCannotBeIsNamed) {
  const struct {
    const char* why;
    std::function<void(ImportOptions&)> edit;
    const char* field;  // nullptr stands for accepted options
    const char* description;
  } kCases[] = {
      {"the defaults", [](ImportOptions&) {}, nullptr, nullptr},
      {"no source", [](ImportOptions& o) { o.source.clear(); }, "options.source_path",
       "empty; name a file or a directory on the server"},
      {"a path as split", [](ImportOptions& o) { o.split = "../a"; }, "options.split",
       "\"../a\" is not the name of a folder in split/"},
      {"no node known beforehand", [](ImportOptions& o) { o.edge_list.num_nodes = 0; }, nullptr, nullptr},
      {"as many nodes as there may be", [](ImportOptions& o) { o.edge_list.num_nodes = kMaxNodes; }, nullptr, nullptr},
      {"one more", [](ImportOptions& o) { o.edge_list.num_nodes = int64_t{kMaxNodes} + 1; },
       "options.edge_list.num_nodes", "4294967296 is outside 0..4294967295"},
      {"fewer than none", [](ImportOptions& o) { o.edge_list.num_nodes = -1; }, "options.edge_list.num_nodes",
       "-1 is outside 0..4294967295"},
      {"one of each column, and two to pass over",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kIgnore, EdgeColumn::kWeight, EdgeColumn::kIgnore, EdgeColumn::kTimestamp};
       },
       nullptr, nullptr},
      {"two weights",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kWeight, EdgeColumn::kIgnore, EdgeColumn::kWeight};
       },
       "options.edge_list.columns", "weight stands 2 times; once at most is accepted"},
      {"two times",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kTimestamp, EdgeColumn::kTimestamp};
       },
       "options.edge_list.columns", "timestamp stands 2 times; once at most is accepted"},
      {"all columns in another order",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kTarget, EdgeColumn::kTimestamp, EdgeColumn::kSource};
       },
       nullptr, nullptr},
      {"a source without a target",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kSource, EdgeColumn::kWeight};
       },
       "options.edge_list.columns",
       "source and target stand there both, where all columns are named, or neither, where only those after them are"},
      {"two targets",
       [](ImportOptions& o) {
         o.edge_list.columns = {EdgeColumn::kTarget, EdgeColumn::kSource, EdgeColumn::kTarget};
       },
       "options.edge_list.columns", "target stands 2 times; once at most is accepted"},
      {"a quote that begins comments", [](ImportOptions& o) { o.edge_list.quote = '#'; }, "options.edge_list.quote",
       "\"#\" begins comments; another character is accepted"},
      {"a quote between cells", [](ImportOptions& o) { o.edge_list.quote = o.edge_list.delimiter = ';'; },
       "options.edge_list.quote", "\";\" stands between cells; another character is accepted"},
      {"no quotes, no comments", [](ImportOptions& o) { o.edge_list.quote = o.edge_list.comment = '\0'; }, nullptr,
       nullptr},
      {"cells apart by what begins comments", [](ImportOptions& o) { o.edge_list.delimiter = '#'; },
       "options.edge_list.delimiter", "\"#\" begins comments; another character is accepted"},
      {"a delimiter to find, and no comments",
       [](ImportOptions& o) { o.edge_list.delimiter = o.edge_list.comment = '\0'; }, nullptr, nullptr},
      {"the least memory", [](ImportOptions& o) { o.memory_bytes = 16 << 20; }, nullptr, nullptr},
      {"less", [](ImportOptions& o) { o.memory_bytes = (16 << 20) - 1; }, "options.memory_bytes",
       "16777215 is neither 0 nor at least 16777216 (16 MiB)"},
      {"degrees up to the most categories", [](ImportOptions& o) { o.tu.max_degree = 999'999; }, nullptr, nullptr},
      {"more", [](ImportOptions& o) { o.tu.max_degree = 1'000'000; }, "options.tu.max_degree",
       "1000000 is outside 1..999999"},
      {"no degree at all", [](ImportOptions& o) { o.tu.max_degree = 0; }, "options.tu.max_degree",
       "0 is outside 1..999999"},
      {"more columns than one-hot makes", [](ImportOptions& o) { o.tu = {.one_hot = true, .max_degree = 4096}; },
       "options.tu.max_degree", "4096 is outside 1..4095, one-hot"},
      {"fractions of more than all", [](ImportOptions& o) { o.valid_fraction = 0.21; }, "options.valid_fraction",
       "0.21 and options.train_fraction 0.8 make 1.01, more than 1; accepted: both given, together at most 1 (each "
       "that is not given is its default, 0.8 of train_fraction and 0.1 of valid_fraction)"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    ImportOptions options;
    options.source = "/data";
    c.edit(options);
    const auto violations = GetViolations(CheckImportOptions(options));
    ASSERT_EQ(violations.size(), c.field == nullptr ? 0u : 1u);
    if (c.field == nullptr) continue;
    EXPECT_EQ(violations[0].field, c.field);
    EXPECT_EQ(violations[0].description, c.description);
  }
}

TEST(ImportOptions, AllThatCannotBeIsToldAtOnce) {
  ImportOptions options;
  options.split = ".";
  options.train_fraction = 2;
  options.edge_list.num_nodes = -1;
  options.memory_bytes = 1;
  EXPECT_EQ(GetViolations(CheckImportOptions(options)).size(), 5u);
}

}  // namespace
}  // namespace permafrost::data
