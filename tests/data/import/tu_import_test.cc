#include "data/import/tu_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three graphs of 3, 1 and 2 nodes; labels 1, -1, 1. Graph 0 is a path 1-2-3 with a doubled edge 1->2; graph 1 has no
// edge; graph 2 is the edge 5-6 with a self-loop at 6.
Files SmallTu() {
  return {{"S_A.txt", "1, 2\n2, 1\n1, 2\n2, 3\n3, 2\n5, 6\n6, 5\n6, 6\n"},
          {"S_graph_indicator.txt", "1\n1\n1\n2\n3\n3\n"},
          {"S_graph_labels.txt", "1\n-1\n1\n"}};
}

std::string ZipOf(const fs::path& path, const Files& files) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  for (const auto& [name, bytes] : files) {
    EXPECT_GE(zip_file_add(archive, name.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0),
                           ZIP_FL_ENC_UTF_8),
              0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  return path.string();
}

absl::StatusOr<GraphSetSummary> ImportTu(const fs::path& source, const fs::path& store, ImportOptions options = {},
                                         const ImportLimits& limits = {}) {
  fs::remove_all(store);
  fs::create_directories(store);
  options.source = source;
  const auto summary = Import(options, store, /*observer=*/{}, std::stop_token(), limits);
  if (!summary.ok()) return summary.status();
  return std::get<GraphSetSummary>(*summary);
}

std::shared_ptr<const GraphSet> StoreOf(const fs::path& directory, const Files& files,
                                        const ImportOptions& options = {}) {
  WriteFiles(directory / "source", files);
  const auto summary = ImportTu(directory / "source", directory / "store", options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (!summary.ok()) return nullptr;
  auto set = GraphSet::Open(directory / "store");
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? *std::move(set) : nullptr;
}

std::string BytesOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Files With(Files files, const Files& changes) {
  for (const auto& [name, text] : changes) files[name] = text;
  return files;
}

fs::path SharedTu(const std::string& name) {
  const fs::path path = fs::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "tu" / (name + ".zip");
  return fs::exists(path) ? path : fs::path();
}

TEST(TuImport, GraphsAreAsTheFilesSay) {
  TempDir temp;
  const auto set = StoreOf(temp.path(), SmallTu());
  ASSERT_NE(set, nullptr);
  const GraphSetSummary& summary = set->summary();
  EXPECT_THAT(ToVector(*set->node_offsets()), ElementsAre(0, 3, 4, 6));
  EXPECT_THAT(ToVector(*set->edge_offsets()), ElementsAre(0, 5, 5, 8));
  // By target, ties in the file's order.
  EXPECT_THAT(ToVector(*set->edge_target()), ElementsAre(0, 1, 1, 1, 2, 0, 1, 1));
  EXPECT_THAT(ToVector(*set->edge_source()), ElementsAre(1, 0, 0, 2, 1, 1, 0, 1));
  EXPECT_FALSE(summary.inverse_edges_added);
  EXPECT_EQ(summary.duplicate_edges, 1);
  // Classes count from 0, in the order of the source's numbers, which are kept.
  EXPECT_THAT(ToVector(*set->labels()), ElementsAre(1, 0, 1));
  EXPECT_THAT(summary.class_values, ElementsAre(-1, 1));
  EXPECT_TRUE(summary.labels_known && summary.integer_labels);
  EXPECT_EQ(summary.min_label, 0);
  EXPECT_EQ(summary.max_label, 1);
  // Without labels and attributes nodes have their degree.
  const FeatureTable nodes = *set->node_features();
  EXPECT_EQ(nodes.type, DataType::kInt32);
  EXPECT_THAT(ToVector(nodes.ints), ElementsAre(2, 2, 1, 0, 1, 2));
  EXPECT_THAT(summary.node_features.max, ElementsAre(2));
  EXPECT_EQ(summary.node_feature_origin, "degrees, at most 1000 (0 nodes have more)");
  EXPECT_EQ(set->edge_features()->type, DataType::kNone);
}

TEST(TuImport, SeveralEdgesMerge) {
  TempDir temp;
  const auto set = StoreOf(temp.path(), With(SmallTu(), {{"S_edge_labels.txt", "5\n6\n7\n8\n9\n5\n5\n6\n"}}),
                           {.source = {}, .coalesce = true, .split = {}});
  ASSERT_NE(set, nullptr);
  EXPECT_THAT(ToVector(*set->edge_target()), ElementsAre(0, 1, 1, 2, 0, 1, 1));
  EXPECT_THAT(ToVector(*set->edge_source()), ElementsAre(1, 0, 2, 1, 1, 0, 1));
  // The first one's label is kept, the second one's gone; labels count from the smallest.
  EXPECT_THAT(ToVector(set->edge_features()->ints), ElementsAre(1, 0, 4, 3, 0, 0, 1));
  EXPECT_EQ(set->summary().edge_feature_origin, "labels from 5");
  EXPECT_EQ(set->summary().duplicate_edges, 1);
  // Degrees are of what is kept.
  EXPECT_THAT(ToVector(set->node_features()->ints), ElementsAre(1, 2, 1, 0, 1, 2));
}

TEST(TuImport, FeaturesAreLabelsAttributesOrBoth) {
  const Files labels = {{"S_node_labels.txt", "3\n5\n3\n4\n3\n5\n"}};
  const Files attributes = {{"S_node_attributes.txt", "1, 0.5\n2, 0.5\n3, 0.5\n4, 0.5\n5, 0.5\n6, 0.5\n"}};
  Files both = labels;
  both.insert(attributes.begin(), attributes.end());
  const struct {
    const char* why;
    Files files;
    TuOptions tu;
    DataType type;
    std::vector<float> first, last;  // rows
    std::string origin;
  } kCases[] = {
      {"labels are categories from the smallest", labels, {}, DataType::kInt32, {0}, {2}, "labels from 3"},
      {"one-hot labels", labels, {.one_hot = true}, DataType::kFloat32, {1, 0, 0}, {0, 0, 1}, "one-hot labels from 3"},
      {"attributes", attributes, {}, DataType::kFloat32, {1, 0.5}, {6, 0.5}, "attributes"},
      {"both, as PyG with use_node_attr",
       both,
       {},
       DataType::kFloat32,
       {1, 0.5, 1, 0, 0},
       {6, 0.5, 0, 0, 1},
       "attributes and one-hot labels from 3"},
      {"labels of both", both, {.node_features = TuNodeFeatures::kLabels}, DataType::kInt32, {0}, {2}, "labels from 3"},
      {"attributes of both",
       both,
       {.node_features = TuNodeFeatures::kAttributes},
       DataType::kFloat32,
       {1, 0.5},
       {6, 0.5},
       "attributes"},
      {"degrees all the same",
       both,
       {.node_features = TuNodeFeatures::kDegree},
       DataType::kInt32,
       {2},
       {2},
       "degrees, at most 1000 (0 nodes have more)"},
      {"capped degrees", {}, {.max_degree = 1}, DataType::kInt32, {1}, {1}, "degrees, at most 1 (3 nodes have more)"},
      {"one-hot degrees",
       {},
       {.one_hot = true},
       DataType::kFloat32,
       {0, 0, 1},
       {0, 0, 1},
       "one-hot degrees, at most 1000 (0 nodes have more)"},
      {"several labels a node",
       {{"S_node_labels.txt", "0, 1\n0, 1\n0, 1\n0, 1\n0, 1\n1, 3\n"}},
       {},
       DataType::kInt32,
       {0, 0},
       {1, 2},
       "labels from 0, 1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    const auto set = StoreOf(temp.path(), With(SmallTu(), c.files), {.source = {}, .split = {}, .tu = c.tu});
    ASSERT_NE(set, nullptr);
    const FeatureTable table = *set->node_features();
    EXPECT_EQ(table.type, c.type);
    ASSERT_EQ(table.width, static_cast<int64_t>(c.first.size()));
    const auto row = [&](size_t n) {
      std::vector<float> values;
      for (size_t i = 0; i < c.first.size(); ++i) {
        const size_t at = n * c.first.size() + i;
        values.push_back(c.type == DataType::kInt32 ? static_cast<float>(table.ints[at]) : table.floats[at]);
      }
      return values;
    };
    EXPECT_EQ(row(0), c.first);
    EXPECT_EQ(row(5), c.last);
    EXPECT_EQ(set->summary().node_feature_origin, c.origin);
    for (size_t column = 0; column < c.first.size(); ++column) {
      double low = row(0)[column], high = low;
      for (size_t n = 0; n < 6; ++n)
        low = std::min<double>(low, row(n)[column]), high = std::max<double>(high, row(n)[column]);
      EXPECT_EQ(set->summary().node_features.min[column], low) << column;
      EXPECT_EQ(set->summary().node_features.max[column], high) << column;
    }
  }
}

TEST(TuImport, TargetsOfOtherKinds) {
  TempDir temp;
  // Measures of a graph come before its class, as in PyG, and stay as they are.
  const auto measured =
      StoreOf(temp.path() / "a", With(SmallTu(), {{"S_graph_attributes.txt", "0.5, 1\nnan, 2\n3, 4\n"}}));
  ASSERT_NE(measured, nullptr);
  EXPECT_EQ(measured->summary().num_targets, 2);
  EXPECT_EQ(measured->summary().num_missing_labels, 1);
  EXPECT_TRUE(measured->summary().class_values.empty());
  EXPECT_FALSE(measured->summary().integer_labels);
  EXPECT_EQ(measured->summary().min_label, 0.5);
  EXPECT_EQ((*measured->labels())[5], 4);
  // A missing class stays missing.
  const auto missing = StoreOf(temp.path() / "b", With(SmallTu(), {{"S_graph_labels.txt", "7\nnan\n9\n"}}));
  ASSERT_NE(missing, nullptr);
  EXPECT_THAT(missing->summary().class_values, ElementsAre(7, 9));
  EXPECT_TRUE(std::isnan((*missing->labels())[1]));
  EXPECT_EQ((*missing->labels())[2], 1);
  // Fractions are no classes.
  const auto values = StoreOf(temp.path() / "c", With(SmallTu(), {{"S_graph_labels.txt", "7\n8.5\n9\n"}}));
  ASSERT_NE(values, nullptr);
  EXPECT_TRUE(values->summary().class_values.empty());
  EXPECT_EQ((*values->labels())[1], 8.5F);
  Files none = SmallTu();
  none.erase("S_graph_labels.txt");
  const auto unlabelled = StoreOf(temp.path() / "d", none);
  ASSERT_NE(unlabelled, nullptr);
  EXPECT_EQ(unlabelled->summary().num_targets, 0);
  EXPECT_EQ(unlabelled->summary().all.graphs, 3);
}

TEST(TuImport, IdsFromZeroAndGraphsWithoutNodes) {
  TempDir temp;
  const auto zero = StoreOf(temp.path() / "a", {{"S_A.txt", "1,2\n0,1\n3,3\n"},
                                                {"S_graph_indicator.txt", "0\n0\n0\n2\n"},
                                                {"S_graph_labels.txt", "1\n2\n2\n1\n"}});
  ASSERT_NE(zero, nullptr);
  EXPECT_THAT(ToVector(*zero->node_offsets()), ElementsAre(0, 3, 3, 4, 4));
  EXPECT_THAT(ToVector(*zero->edge_source()), ElementsAre(0, 1, 0));
  EXPECT_THAT(ToVector(*zero->edge_target()), ElementsAre(1, 2, 0));
}

TEST(TuImport, ZipAndFoldersGiveTheSameStore) {
  TempDir temp;
  Files nested, raw, archived = {{"__MACOSX/deep/._S_graph_indicator.txt", "no text"}, {"../../evil.txt", "x\n"}};
  for (const auto& [name, text] : SmallTu()) {
    raw["raw/" + name] = text;
    archived["../deep/" + name] = text;  // a member's name leads nowhere
  }
  WriteFiles(temp.path() / "plain", SmallTu());
  WriteFiles(temp.path() / "pyg", raw);
  ZipOf(temp.path() / "set.ZIP", archived);
  std::vector<std::string> stores;
  for (const char* source : {"plain", "pyg", "set.ZIP"}) {
    SCOPED_TRACE(source);
    const fs::path store = temp.path() / absl::StrCat("store-", source);
    const auto summary = ImportTu(temp.path() / source, store);
    ASSERT_TRUE(summary.ok()) << summary.status();
    stores.push_back(BytesOf(store / GraphSet::kFileName));
  }
  EXPECT_FALSE(stores[0].empty());
  EXPECT_EQ(stores[1], stores[0]);
  EXPECT_EQ(stores[2], stores[0]);
  EXPECT_FALSE(fs::exists(temp.path().parent_path() / "evil.txt"));
}

TEST(TuImport, AMemberThatUnpacksTooFarIsRefused) {
  TempDir temp;
  // 100 MB of one line again and again pack to a thousandth.
  std::string bomb;
  for (int i = 0; i < 50'000'000; ++i) bomb += "1\n";
  Files files = SmallTu();
  files["S_graph_indicator.txt"] = std::move(bomb);
  const std::string path = ZipOf(temp.path() / "bomb.zip", files);
  ASSERT_LT(fs::file_size(path), 1 << 20);
  const auto summary = ImportTu(path, temp.path() / "store");
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("S_graph_indicator.txt:"));
  EXPECT_THAT(std::string(summary.status().message()),
              HasSubstr("unpacks to more than 67108864 bytes, too many for its packed size"));
}

TEST(TuImport, EveryBadInputIsOneLineThatNamesIt) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  const struct {
    const char* why;
    Files changes;  // "-": removed
    absl::StatusCode code;
    std::string want;
    ImportOptions options = {};
  } kCases[] = {
      {"no edges", {{"S_A.txt", "-"}}, kNotFound, "S_A.txt: not found in "},
      {"two sets", {{"T_graph_indicator.txt", "1\n"}}, kInvalid, "holds several sets, S and T; one is accepted"},
      {"an end no number", {{"S_A.txt", "1, 2\n2, x\n"}}, kInvalid, "S_A.txt:2: target: \"x\" is not an integer"},
      {"an end beyond the set", {{"S_A.txt", "1, 2\n7, 1\n"}}, kInvalid, "S_A.txt:2: source: 7 is outside 1..6"},
      {"a negative end", {{"S_A.txt", "-1, 2\n"}}, kInvalid, "S_A.txt:1: source: -1 is outside 1..6"},
      {"an end beyond 64 bits",
       {{"S_A.txt", "99999999999999999999, 2\n"}},
       kInvalid,
       "S_A.txt:1: source: \"99999999999999999999\" is outside 64 bits"},
      {"ids from 0 and up to the number of nodes",
       {{"S_A.txt", "0, 1\n5, 6\n"}},
       kInvalid,
       "S_A.txt:2: target: 6 is outside 0..5"},
      {"an edge between graphs",
       {{"S_A.txt", "1, 2\n3, 4\n"}},
       kInvalid,
       "S_A.txt:2: target: 4 is of another graph than source 3, of graph 1 with the nodes 1..3"},
      {"edges out of their graphs' order",
       {{"S_A.txt", "5, 6\n1, 2\n"}},
       kInvalid,
       "S_A.txt:2: source: 1 is of a graph before graph 3 of the row before"},
      {"three ends", {{"S_A.txt", "1, 2, 3\n"}}, kInvalid, "S_A.txt:1: columns: the row has 3, expected 2"},
      {"an empty line", {{"S_A.txt", "1, 2\n\n2, 1\n"}}, kInvalid, "S_A.txt:2: the line is empty"},
      {"a graph that has no label",
       {{"S_graph_indicator.txt", "1\n4\n"}},
       kInvalid,
       "S_graph_indicator.txt:2: graph: 4 is outside 1..3 (a graph for each graph label)"},
      {"graphs that fall",
       {{"S_graph_indicator.txt", "2\n1\n"}},
       kInvalid,
       "S_graph_indicator.txt:2: graph: 1 stands after 2; graphs are accepted in rising order"},
      {"a graph no number", {{"S_graph_indicator.txt", "one\n"}}, kInvalid, "S_graph_indicator.txt:1: graph: \"one\""},
      {"a class no number", {{"S_graph_labels.txt", "1\nc\n1\n"}}, kInvalid, "S_graph_labels.txt:2: target 1: \"c\""},
      {"ragged labels",
       {{"S_graph_labels.txt", "1\n1, 2\n1\n"}},
       kInvalid,
       "S_graph_labels.txt:2: columns: the row has 2, expected 1"},
      {"a node label no number",
       {{"S_node_labels.txt", "1\n2.5\n1\n1\n1\n1\n"}},
       kInvalid,
       "S_node_labels.txt:2: label 1: \"2.5\" is no whole number of 32 bits"},
      {"fewer node labels than nodes",
       {{"S_node_labels.txt", "1\n2\n"}},
       kInvalid,
       "S_node_labels.txt: rows: the file has 2, expected 6 (one a node"},
      {"more edge labels than edges",
       {{"S_edge_labels.txt", "1\n1\n1\n1\n1\n1\n1\n1\n1\n"}},
       kInvalid,
       "S_edge_labels.txt: rows: the file has 9, expected 8 (one an edge, as the rows of S_A.txt)"},
      {"an attribute no number",
       {{"S_node_attributes.txt", "1\n2\n3\n4\n5\ninf\n"}},
       kInvalid,
       "S_node_attributes.txt:6: attribute 1: \"inf\" is not a finite number"},
      {"ragged attributes",
       {{"S_node_attributes.txt", "1\n2, 3\n3\n4\n5\n6\n"}},
       kInvalid,
       "S_node_attributes.txt:2: columns: the row has 2, expected 1"},
      {"too many one-hot columns",
       {{"S_node_labels.txt", "1\n5000\n1\n1\n1\n1\n"}},
       kInvalid,
       "S_node_labels.txt: label 1: numbers from 1 to 5000 make 5000 one-hot columns; at most 4096",
       {.source = {}, .split = {}, .tu = {.one_hot = true}}},
      {"labels that are not there",
       {},
       kInvalid,
       "options.tu.node_features: labels, but there is no S_node_labels.txt",
       {.source = {}, .split = {}, .tu = {.node_features = TuNodeFeatures::kLabels}}},
      {"a split to choose",
       {},
       kInvalid,
       "options.split: \"x\": a TUDataset has no splits",
       {.source = {}, .split = "x"}},
      {"a layout of one large graph",
       {},
       kInvalid,
       "options.order: degree is for one large graph",
       {.source = {}, .order = NodeOrder::kDegree, .split = {}}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    Files files = SmallTu();
    for (const auto& [name, text] : c.changes) {
      files.erase(name);
      if (text != "-") files[name] = text;
    }
    WriteFiles(temp.path() / "source", files);
    const auto summary = ImportTu(temp.path() / "source", temp.path() / "store", c.options);
    EXPECT_EQ(summary.status().code(), c.code);
    const std::string message(summary.status().message());
    EXPECT_THAT(message, HasSubstr(c.want));
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }
}

TEST(TuImport, BadArchives) {
  TempDir temp;
  WriteText(temp.path() / "text.zip", "no archive at all");
  auto summary = ImportTu(temp.path() / "text.zip", temp.path() / "store");
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("text.zip: is no ZIP archive"));
  ZipOf(temp.path() / "other.zip", {{"readme.txt", "x"}});
  summary = ImportTu(temp.path() / "other.zip", temp.path() / "store");
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("holds no NAME_graph_indicator.txt"));
  ZipOf(temp.path() / "good.zip", SmallTu());
  std::string bytes = BytesOf(temp.path() / "good.zip");
  // Whatever byte is another: a whole store, or one line.
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x21);
    WriteText(temp.path() / "changed.zip", changed);
    summary = ImportTu(temp.path() / "changed.zip", temp.path() / "store");
    const std::string message(summary.status().message());
    EXPECT_NE(summary.status().code(), absl::StatusCode::kInternal) << at << message;
    EXPECT_EQ(message.find('\n'), message.npos) << at;
    if (summary.ok()) {
      EXPECT_TRUE(GraphSet::Open(temp.path() / "store").ok()) << at;
    }
  }
  // What lies outside of the import roots is not even listed.
  const ImportLimits closed{.may_read = [](const fs::path&) { return false; }};
  summary = ImportTu(temp.path() / "good.zip", temp.path() / "store", {}, closed);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(TuImport, SplitsAreStratifiedAndSeeded) {
  // 200 graphs of one node: 150 of class 0, 50 of class 1.
  Files files = {{"S_A.txt", ""}, {"S_graph_indicator.txt", ""}, {"S_graph_labels.txt", ""}};
  for (int g = 1; g <= 200; ++g) {
    absl::StrAppend(&files["S_graph_indicator.txt"], g, "\n");
    absl::StrAppend(&files["S_graph_labels.txt"], g % 4 == 0 ? 2 : 1, "\n");
  }
  std::map<uint64_t, std::vector<uint32_t>> tests;
  for (const uint64_t seed : {0u, 0u, 1u}) {
    TempDir temp;
    const auto set = StoreOf(temp.path(), files, {.source = {}, .split = {}, .split_seed = seed});
    ASSERT_NE(set, nullptr);
    const auto labels = ToVector(*set->labels());
    std::vector<int> times(200);
    const struct {
      Split split;
      int64_t of[2];
    } kWant[] = {{Split::kTrain, {120, 40}}, {Split::kValid, {15, 5}}, {Split::kTest, {15, 5}}};
    for (const auto& want : kWant) {
      int64_t of[2] = {0, 0};
      const auto graphs = ToVector(*set->split(want.split));
      for (const uint32_t graph : graphs) ++of[labels[graph] > 0.5F], ++times[graph];
      EXPECT_NEAR(of[0], want.of[0], 1);
      EXPECT_NEAR(of[1], want.of[1], 1);
    }
    EXPECT_EQ(std::ranges::count(times, 1), 200);
    const auto test = ToVector(*set->split(Split::kTest));
    const auto [known, fresh] = tests.emplace(seed, test);
    if (!fresh) {
      EXPECT_EQ(known->second, test);
    }
  }
  EXPECT_NE(tests.at(0), tests.at(1));
}

// Counts of SOURCE.md beside the shared files.
TEST(TuImport, SharedSets) {
  const struct {
    const char* name;
    int64_t graphs, nodes, edges, duplicates;
    std::vector<int64_t> classes;
    int64_t node_width, edge_width;
  } kSets[] = {
      {"MUTAG", 188, 3371, 7442, 0, {-1, 1}, 1, 1},
      {"PROTEINS", 1113, 43471, 162088, 0, {1, 2}, 4, 0},
      {"IMDB-BINARY", 1000, 19773, 193062, 0, {0, 1}, 1, 0},
      {"IMDB-BINARY-duplicated", 1000, 19773, 386124, 193062, {0, 1}, 1, 0},
  };
  for (const auto& want : kSets) {
    SCOPED_TRACE(want.name);
    const fs::path source = SharedTu(want.name);
    if (source.empty()) GTEST_SKIP() << "no ../shared/data/tu";
    TempDir temp;
    const auto summary = ImportTu(source, temp.path() / "store");
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->all.graphs, want.graphs);
    EXPECT_EQ(summary->all.nodes, want.nodes);
    EXPECT_EQ(summary->all.edges, want.edges);
    EXPECT_EQ(summary->duplicate_edges, want.duplicates);
    EXPECT_EQ(summary->class_values, want.classes);
    EXPECT_EQ(summary->node_features.width, want.node_width);
    EXPECT_EQ(summary->edge_features.width, want.edge_width);
    const auto set = GraphSet::Open(temp.path() / "store");
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_TRUE((*set)->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
    EXPECT_EQ((*set)->summary().class_values, want.classes);
    EXPECT_EQ((*set)->summary().node_feature_origin, summary->node_feature_origin);
  }
}

TEST(TuImport, MergedDuplicatesAreTheSetWithoutThem) {
  if (SharedTu("IMDB-BINARY").empty()) GTEST_SKIP() << "no ../shared/data/tu";
  TempDir temp;
  ASSERT_TRUE(ImportTu(SharedTu("IMDB-BINARY"), temp.path() / "once").ok());
  ASSERT_TRUE(ImportTu(SharedTu("IMDB-BINARY-duplicated"), temp.path() / "merged",
                       {.source = {}, .coalesce = true, .split = {}})
                  .ok());
  const auto once = GraphSet::Open(temp.path() / "once"), merged = GraphSet::Open(temp.path() / "merged");
  ASSERT_TRUE(once.ok() && merged.ok());
  EXPECT_EQ(ToVector(*(*once)->edge_offsets()), ToVector(*(*merged)->edge_offsets()));
  EXPECT_EQ(ToVector(*(*once)->edge_source()), ToVector(*(*merged)->edge_source()));
  EXPECT_EQ(ToVector((*once)->node_features()->ints), ToVector((*merged)->node_features()->ints));
}

TEST(TuImport, MemoryIsBounded) {
  TempDir temp;
  std::string indicator, labels, edges;
  for (int g = 1; g <= 5000; ++g) absl::StrAppend(&indicator, g, "\n"), absl::StrAppend(&labels, "1\n");
  WriteFiles(temp.path() / "graphs",
             {{"S_A.txt", ""}, {"S_graph_indicator.txt", indicator}, {"S_graph_labels.txt", labels}});
  const ImportLimits limits{.memory_bytes = 20'000};
  auto summary = ImportTu(temp.path() / "graphs", temp.path() / "store", {}, limits);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
  indicator.clear();
  for (int n = 1; n <= 40; ++n) absl::StrAppend(&indicator, "1\n");
  for (int a = 1; a <= 40; ++a)
    for (int b = 1; b <= 40; ++b) absl::StrAppend(&edges, a, ",", b, "\n");
  WriteFiles(temp.path() / "edges",
             {{"S_A.txt", edges}, {"S_graph_indicator.txt", indicator}, {"S_graph_labels.txt", "1\n"}});
  summary = ImportTu(temp.path() / "edges", temp.path() / "store", {}, limits);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
}

}  // namespace
}  // namespace permafrost::data
