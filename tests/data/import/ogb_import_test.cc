#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Spreadsheets begin UTF-8 files with a byte order mark.
TEST(OgbImport, AByteOrderMarkIsNoPartOfTheFirstCell) {
  Files marked = SmallSet();
  for (auto& [name, text] : marked) text.insert(0, "\xef\xbb\xbf");
  marked["raw/edge.csv.gz"] = Gzip(marked["raw/edge.csv"]);
  marked.erase("raw/edge.csv");
  const TempDir plain_folder, marked_folder;
  const auto plain = MakeStore(plain_folder.path(), SmallSet()), set = MakeStore(marked_folder.path(), marked);
  ASSERT_TRUE(plain != nullptr && set != nullptr);
  EXPECT_EQ(ReadFile(marked_folder.path() / "store" / "graphs.pfg").value(),
            ReadFile(plain_folder.path() / "store" / "graphs.pfg").value());
}

TEST(OgbImport, SmallSetToTheLastValue) {
  TempDir temp;
  const auto set = MakeStore(temp.path(), SmallSet());
  ASSERT_NE(set, nullptr);
  EXPECT_THAT(*set->node_offsets(), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(*set->edge_offsets(), ElementsAre(0, 8, 8, 10));
  // In file order with inverses the edges are 2>0 0>2 0>1 1>0 2>0 0>2 1>2 2>1. They are sorted by target, and equal
  // targets keep that order.
  EXPECT_THAT(*set->edge_source(), ElementsAre(2, 1, 2, 0, 2, 0, 0, 1, 0, 0));
  EXPECT_THAT(*set->edge_target(), ElementsAre(0, 0, 0, 1, 1, 2, 2, 2, 0, 0));
  const FeatureTable nodes = *set->node_features();
  EXPECT_EQ(nodes.type, DataType::kInt32);
  EXPECT_EQ(nodes.width, 2);
  EXPECT_THAT(nodes.ints, ElementsAre(1, 10, 2, 20, 3, 30, 4, 40, 5, 50));
  EXPECT_THAT(nodes.floats, IsEmpty());
  const FeatureTable edges = *set->edge_features();
  EXPECT_EQ(edges.type, DataType::kFloat32) << "the first cell has a fraction";
  EXPECT_THAT(edges.floats, ElementsAre(0.5f, 1, 2, 1, 3, 0.5f, 2, 3, 4, 4)) << "an inverse has its edge's features";
  const auto labels = *set->labels();
  ASSERT_EQ(labels.size(), 3u);
  EXPECT_EQ(labels[0], 1.5f);
  EXPECT_TRUE(std::isnan(labels[1]));
  EXPECT_EQ(labels[2], -2.0f);
  EXPECT_THAT(*set->split(Split::kTrain), ElementsAre(2, 0)) << "file order";
  EXPECT_THAT(*set->split(Split::kValid), ElementsAre(1));
  EXPECT_THAT(*set->split(Split::kTest), IsEmpty());

  const GraphSetSummary& summary = set->summary();
  EXPECT_EQ(summary.all.graphs, 3);
  EXPECT_EQ(summary.all.nodes, 5);
  EXPECT_EQ(summary.all.edges, 10);
  EXPECT_EQ(summary.all.max_nodes, 3);
  EXPECT_EQ(summary.all.max_edges, 8);
  EXPECT_NEAR(summary.all.mean_nodes, 5.0 / 3, 1e-12);
  EXPECT_NEAR(summary.all.std_nodes, std::sqrt(8.0 / 9), 1e-12) << "of the population";
  EXPECT_EQ(summary.splits[0].graphs, 2);
  EXPECT_EQ(summary.splits[1].node_edge_correlation, 0) << "one graph does not vary";
  EXPECT_EQ(summary.num_targets, 1);
  EXPECT_EQ(summary.num_missing_labels, 1);
  EXPECT_EQ(summary.split_name, "plain");
  EXPECT_TRUE(summary.inverse_edges_added);
  EXPECT_EQ(summary.store_bytes, fs::file_size(temp.path() / "store" / GraphSet::kFileName));
  EXPECT_THAT(summary.node_features.min, ElementsAre(1, 10));
  EXPECT_THAT(summary.node_features.max, ElementsAre(5, 50));
  EXPECT_THAT(summary.edge_features.min, ElementsAre(0.5));

  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(temp.path() / "store")) left.push_back(entry.path().filename());
  EXPECT_THAT(left, ElementsAre(std::string(GraphSet::kFileName))) << "no part files remain";
}

TEST(OgbImport, WithoutInverses) {
  TempDir temp;
  const auto set =
      MakeStore(temp.path(), SmallSet(), {.source = {}, .inverse_edges = InverseEdges::kKeep, .split = {}});
  ASSERT_NE(set, nullptr);
  EXPECT_THAT(*set->edge_offsets(), ElementsAre(0, 4, 4, 5));
  EXPECT_THAT(*set->edge_source(), ElementsAre(2, 2, 0, 1, 0));
  EXPECT_THAT(*set->edge_target(), ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(set->edge_features()->floats, ElementsAre(0.5f, 2, 1, 3, 4));
  EXPECT_FALSE(set->summary().inverse_edges_added);
}

TEST(OgbImport, PositionsAreFloatsOfEachNode) {
  Files packed = PlacedSet();
  packed["raw/node-pos.csv.gz"] = Gzip(packed["raw/node-pos.csv"]);
  packed.erase("raw/node-pos.csv");
  for (const Files& files : {PlacedSet(), packed}) {
    TempDir temp;
    const auto set = MakeStore(temp.path(), files);
    ASSERT_NE(set, nullptr);
    const FeatureTable positions = *set->positions();
    EXPECT_EQ(positions.type, DataType::kFloat32);
    EXPECT_EQ(positions.width, 4);
    EXPECT_THAT(positions.floats, ElementsAre(0, 1, 2, 3, 1.5F, -1, 0, 1, 3, 4, 5, 6, 6, 7, 8, 9, -9, 1000, 0.25F, 0));
    EXPECT_EQ(set->summary().position_columns, 4);
    EXPECT_EQ(set->node_features()->width, 2) << "they are no features";
    EXPECT_TRUE(set->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
  }
}

// Variations of a source that are valid.
TEST(OgbImport, Accepts) {
  const auto with = [](std::initializer_list<std::pair<std::string, std::optional<std::string>>> changes) {
    Files files = SmallSet();
    for (const auto& [name, text] : changes) {
      files.erase(name);
      if (text) files[name] = *text;
    }
    return files;
  };
  const std::string edges = SmallSet()["raw/edge.csv"];
  const struct {
    const char* why;
    Files files;
    int64_t nodes, edges;
  } kCases[] = {
      {"as it is", SmallSet(), 5, 10},
      {"gzip", with({{"raw/edge.csv.gz", Gzip(edges)}, {"raw/edge.csv", std::nullopt}}), 5, 10},
      {"gzip of two members",
       with({{"raw/edge.csv.gz", Gzip(edges.substr(0, 5)) + Gzip(edges.substr(5))}, {"raw/edge.csv", std::nullopt}}), 5,
       10},
      {"line ends of another system", with({{"raw/edge.csv", "2,0\r\n0,1\r\n2,0\r\n1,2\r\n0,0\r\n"}}), 5, 10},
      {"spaces around cells", with({{"raw/edge.csv", " 2, 0\n0 ,1\n2,0\n1,2\n0,\t0\n"}}), 5, 10},
      {"no end of line at the end", with({{"raw/edge.csv", "2,0\n0,1\n2,0\n1,2\n0,0"}}), 5, 10},
      {"empty lines at the end of every file",
       with({{"raw/edge.csv", edges + "\n\r\n"},
             {"raw/num-node-list.csv", "3\n1\n1\n\n"},
             {"raw/num-edge-list.csv", "4\n0\n1\n\n"},
             {"raw/graph-label.csv", "1\n2\n3\n\n"},
             {"split/plain/train.csv", "0\n\n"}}),
       5, 10},
      {"no features", with({{"raw/node-feat.csv", std::nullopt}, {"raw/edge-feat.csv", std::nullopt}}), 5, 10},
      {"a graph without nodes", with({{"raw/num-node-list.csv", "3\n0\n2\n"}}), 5, 10},
      {"a set without edges",
       with({{"raw/num-edge-list.csv", "0\n0\n0\n"}, {"raw/edge.csv", ""}, {"raw/edge-feat.csv", ""}}), 5, 0},
      {"a set without graphs",
       {{"raw/num-node-list.csv", ""},
        {"raw/num-edge-list.csv", ""},
        {"raw/edge.csv", ""},
        {"raw/node-feat.csv", ""},
        {"raw/graph-label.csv", ""}},
       0,
       0},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    const auto set = MakeStore(temp.path(), c.files);
    ASSERT_NE(set, nullptr);
    EXPECT_EQ(set->summary().all.nodes, c.nodes);
    EXPECT_EQ(set->summary().all.edges, c.edges);
    EXPECT_EQ(set->node_offsets()->back(), static_cast<uint64_t>(c.nodes));
    EXPECT_EQ(set->edge_source()->size(), static_cast<size_t>(c.edges));
    EXPECT_EQ(set->edge_target()->size(), static_cast<size_t>(c.edges));
    EXPECT_TRUE(set->labels().ok() && set->node_features().ok() && set->edge_features().ok());
  }
}

TEST(OgbImport, FeatureTypes) {
  const struct {
    const char* why;
    std::string cells;  // one column, five rows
    DataType want;
    std::vector<double> values;
  } kCases[] = {
      {"integers", "0\n-1\n+2\n2147483647\n-2147483648\n", DataType::kInt32, {0, -1, 2, 2147483647, -2147483648.0}},
      {"a fraction at the end", "1\n2\n3\n4\n5.5\n", DataType::kFloat32, {1, 2, 3, 4, 5.5}},
      {"an exponent", "1\n2e3\n3\n4\n5\n", DataType::kFloat32, {1, 2000, 3, 4, 5}},
      {"a large integer beside a fraction",
       "4294967296\n2\n3\n4\n0.5\n",
       DataType::kFloat32,
       {4294967296.0, 2, 3, 4, 0.5}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    for (const std::string file : {"raw/node-feat.csv", "raw/edge-feat.csv"}) {
      TempDir temp;
      Files files = SmallSet();
      files[file] = c.cells;
      const auto set = MakeStore(temp.path(), files, {.source = {}, .inverse_edges = InverseEdges::kKeep, .split = {}});
      ASSERT_NE(set, nullptr);
      const bool nodes = file == "raw/node-feat.csv";
      const FeatureTable table = nodes ? *set->node_features() : *set->edge_features();
      EXPECT_EQ(table.type, c.want);
      ASSERT_EQ(table.width, 1);
      const FeatureSummary& summary = nodes ? set->summary().node_features : set->summary().edge_features;
      EXPECT_THAT(summary.min, ElementsAre(*std::min_element(c.values.begin(), c.values.end())));
      EXPECT_THAT(summary.max, ElementsAre(*std::max_element(c.values.begin(), c.values.end())));
      for (size_t i = 0; i < 5; ++i) {
        // Edges are stored by target: rows 0 and 2 of the file, then 1, 3 and 4.
        const size_t row = nodes ? i : std::vector<size_t>{0, 2, 1, 3, 4}[i];
        const double value = c.want == DataType::kInt32 ? table.ints[i] : static_cast<double>(table.floats[i]);
        EXPECT_EQ(value, c.values[row]) << i;
      }
    }
  }
}

TEST(OgbImport, MissingLabelsOfSeveralTargets) {
  TempDir temp;
  Files files = SmallSet();
  files["raw/graph-label.csv"] = "1,,nan\nNaN,NA,2\n0,-1,1e-3\n";
  const auto set = MakeStore(temp.path(), files);
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->summary().num_targets, 3);
  EXPECT_EQ(set->summary().num_missing_labels, 4);
  const auto labels = *set->labels();
  EXPECT_TRUE(std::isnan(labels[1]) && std::isnan(labels[2]) && std::isnan(labels[3]) && std::isnan(labels[4]));
  EXPECT_EQ(labels[5], 2.0f);
  EXPECT_EQ(labels[8], 1e-3f);
}

TEST(OgbImport, ASetWithoutLabelsHasNoTargets) {
  TempDir temp;
  Files files = SmallSet();
  files.erase("raw/graph-label.csv");
  const auto set = MakeStore(temp.path(), files);
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->summary().num_targets, 0);
  EXPECT_EQ(set->summary().num_missing_labels, 0);
  EXPECT_FALSE(set->summary().integer_labels);
  EXPECT_EQ(set->summary().all.graphs, 3);
  const auto labels = set->labels();
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_TRUE(labels->empty());
  EXPECT_TRUE(set->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
}

TEST(OgbImport, SplitOptions) {
  TempDir temp;
  Files files = SmallSet();
  files["split/other/train.csv"] = "1\n";
  files["split/other/valid.csv"] = "";
  files["split/other/test.csv"] = "2\n";
  const auto set = MakeStore(temp.path(), files, {.source = {}, .split = "other"});
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->summary().split_name, "other");
  EXPECT_THAT(*set->split(Split::kTrain), ElementsAre(1));
  EXPECT_THAT(*set->split(Split::kTest), ElementsAre(2)) << "graph 0 is in no split, which is allowed";
  const auto missing = ImportInto(temp.path() / "b", {.source = temp.path() / "source", .split = "third"});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("split/third: not found; the source has other, plain"));
}

TEST(OgbImport, DrawsASeededSplitWhereThereIsNone) {
  Files files = {
      {"raw/num-node-list.csv", ""}, {"raw/num-edge-list.csv", ""}, {"raw/edge.csv", ""}, {"raw/graph-label.csv", ""}};
  for (int i = 0; i < 100; ++i) {
    files["raw/num-node-list.csv"] += "1\n";
    files["raw/num-edge-list.csv"] += "0\n";
    files["raw/graph-label.csv"] += "0\n";
  }
  const auto draw = [&files](uint64_t seed) {
    TempDir temp;
    const auto set =
        MakeStore(temp.path(), files,
                  {.source = {}, .split = {}, .split_seed = seed, .train_fraction = 0.5, .valid_fraction = 0.2});
    EXPECT_EQ(set->summary().split_name, "random");
    std::vector<std::vector<uint32_t>> splits;
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTest})
      splits.push_back(ToVector(*set->split(split)));
    return splits;
  };
  const auto first = draw(7);
  EXPECT_EQ(first[0].size(), 50u);
  EXPECT_EQ(first[1].size(), 20u);
  EXPECT_EQ(first[2].size(), 30u);
  std::vector<int> seen(100);
  for (const auto& split : first) {
    EXPECT_TRUE(std::is_sorted(split.begin(), split.end()));
    for (const uint32_t id : split) ++seen[id];
  }
  EXPECT_EQ(seen, std::vector<int>(100, 1)) << "every graph once";
  EXPECT_EQ(draw(7), first);
  EXPECT_NE(draw(8), first);
}

TEST(OgbImport, CheckOptions) {
  const struct {
    const char* why;
    ImportOptions options;
    const char* want;  // null stands for Ok
  } kCases[] = {
      {"defaults", {.source = "/a", .split = {}}, nullptr},
      {"no source", {.source = {}, .split = {}}, "options.source_path"},
      {"a split above its folder", {.source = "/a", .split = ".."}, "options.split"},
      {"a split with a path", {.source = "/a", .split = "a/b"}, "options.split"},
      {"all to train", {.source = "/a", .split = {}, .train_fraction = 1, .valid_fraction = 0}, nullptr},
      {"more than all", {.source = "/a", .split = {}, .train_fraction = 0.8, .valid_fraction = 0.3}, "more than 1"},
      {"tenths that do not sum to 1 exactly",
       {.source = "/a", .split = {}, .train_fraction = 0.7, .valid_fraction = 0.3},
       nullptr},
      {"not a number",
       {.source = "/a", .split = {}, .train_fraction = NAN},
       "options.train_fraction: nan is outside 0..1"},
      {"negative",
       {.source = "/a", .split = {}, .valid_fraction = -0.1},
       "options.valid_fraction: -0.1 is outside 0..1"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = CheckImportOptions(c.options);
    if (c.want == nullptr) {
      EXPECT_TRUE(status.ok()) << c.why << ": " << status;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.want)) << c.why;
    }
  }
}

TEST(OgbImport, ProgressEndsAtTheTotalAndStopIsObeyed) {
  TempDir temp;
  Files files = SmallSet();
  // The fraction in the last line makes the importer read the file twice.
  files["raw/edge-feat.csv"] = "1\n2\n3\n4\n5.5\n";
  WriteFiles(temp.path() / "source", files);
  int64_t total = 0;
  for (const auto& [name, text] : files) total += static_cast<int64_t>(text.size());
  ImportOptions options;
  options.source = temp.path() / "source";
  ImportProgress last;
  fs::create_directories(temp.path() / "store");
  int calls = 0;
  const auto observer = [&](const ImportProgress& progress) {
    last = progress;
    ++calls;
    EXPECT_LE(progress.bytes_read, total);
    EXPECT_EQ(progress.bytes_total, total);
  };
  ASSERT_TRUE(ImportOgbGraphs(options, temp.path() / "store", observer, {}).ok());
  EXPECT_EQ(last.bytes_read, total);
  for (int stop_at = 1; stop_at <= calls; ++stop_at) {
    fs::remove_all(temp.path() / "store");
    fs::create_directories(temp.path() / "store");
    std::stop_source stop;
    int seen = 0;
    const auto stopper = [&](const ImportProgress&) {
      if (++seen == stop_at) stop.request_stop();
    };
    const auto result = ImportOgbGraphs(options, temp.path() / "store", stopper, stop.get_token());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << stop_at << ": " << result.status();
  }
}

}  // namespace
}  // namespace permafrost::data
