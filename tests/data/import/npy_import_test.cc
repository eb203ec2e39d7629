#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Zip(const Files& members, bool deflate) {
  TempDir temp;
  const fs::path path = temp.path() / "a.zip";
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  for (const auto& [name, bytes] : members) {
    const auto index = static_cast<zip_uint64_t>(zip_file_add(
        archive, name.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0), ZIP_FL_ENC_UTF_8));
    EXPECT_EQ(zip_set_file_compression(archive, index, deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0), 0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  return *ReadFile(path);
}

// scipy.sparse.save_npz of [[0, 1, 0.5], [0, 0, 0], [2, 0, 0]]. The columns of the first row are in falling order.
Files MatrixMembers() {
  return {{"format.npy", Npy<char>("|S3", "()", {'c', 's', 'r'})},
          {"shape.npy", Npy<int64_t>("<i8", "(2,)", {3, 3})},
          {"indptr.npy", Npy<int32_t>("<i4", "(4,)", {0, 2, 2, 3})},
          {"indices.npy", Npy<int32_t>("<i4", "(3,)", {2, 1, 0})},
          {"data.npy", Npy<float>("<f4", "(3,)", {0.5f, 1, 2})}};
}

const std::string kEdges = Npy<int64_t>("<i8", "(2, 3)", {2, 0, 1, 0, 1, 1});

class NpyImport : public ::testing::Test {
 protected:
  ImportOptions Options(const Files& files) {
    fs::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    ImportOptions options{.source = temp_.path() / "source"};
    options.inverse_edges = InverseEdges::kKeep;
    return options;
  }
  std::shared_ptr<const Graph> Make(const Files& files) { return MakeGraph(temp_.path() / "store", Options(files)); }
  std::string Error(const Files& files) {
    const auto summary = ImportGraphInto(temp_.path() / "store", Options(files));
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << summary.status();
    return std::string(summary.status().message());
  }
  TempDir temp_;
};

TEST_F(NpyImport, AMemberThatUnpacksTooFarIsRefused) {
  constexpr int64_t kRows = 500'000;
  Files members = MatrixMembers();
  members["shape.npy"] = Npy<int64_t>("<i8", "(2,)", {kRows, kRows});
  members["indptr.npy"] = Npy<int64_t>("<i8", "(500001,)", std::vector<int64_t>(kRows + 1));
  members["indices.npy"] = Npy<int32_t>("<i4", "(0,)", {});
  members["data.npy"] = Npy<float>("<f4", "(0,)", {});
  const ImportOptions options = Options({{"adj.npz", Zip(members, true)}});
  EXPECT_EQ(ImportGraphInto(temp_.path() / "store", options).status(), absl::OkStatus()) << "below the bound";
  const auto summary = ImportGraphInto(temp_.path() / "store", options, {.harmless_unpacked_bytes = uint64_t{2} << 20});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("adj.npz: indptr: unpacks to more than 2097152"));
}

TEST_F(NpyImport, EdgesInEitherShapeAndOfAnyInteger) {
  const struct {
    const char* why;
    std::string bytes;
  } kCases[] = {
      {"[2, edges] of int64", kEdges},
      {"[edges, 2] of int64", Npy<int64_t>("<i8", "(3, 2)", {2, 0, 0, 1, 1, 1})},
      {"uint8", Npy<uint8_t>("|u1", "(2, 3)", {2, 0, 1, 0, 1, 1})},
      {"int32", Npy<int32_t>("<i4", "(2, 3)", {2, 0, 1, 0, 1, 1})},
      {"uint64", Npy<uint64_t>("<u8", "(2, 3)", {2, 0, 1, 0, 1, 1})},
  };
  for (const auto& c : kCases) {
    const auto graph = Make({{"edge_index.npy", c.bytes}});
    ASSERT_NE(graph, nullptr) << c.why;
    EXPECT_THAT(Values(graph->view().in.offsets), ElementsAre(0, 1, 3, 3)) << c.why;
    EXPECT_THAT(Values(graph->view().in.neighbors), ElementsAre(2, 0, 1)) << c.why;
  }
}

TEST_F(NpyImport, WhatStandsBesideTheEdges) {
  const auto graph = Make({{"edge_index.npy", kEdges},
                           {"edge_weight.npy", Npy<double>("<f8", "(3,)", {1, 2, 3})},
                           {"edge_time.npy", Npy<int32_t>("<i4", "(3,)", {-1, -2, -3})},
                           {"edge_feat.npy", Npy<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6})},
                           {"node_label.npy", Npy<float>("<f4", "(4, 2)", {0, 1, NAN, 3, 4, 5, NAN, NAN})},
                           {"node_time.npy", Npy<int64_t>("<i8", "(4,)", {7, -8, 9, int64_t{1} << 40})},
                           {"train_mask.npy", Npy<uint8_t>("|b1", "(4,)", {0, 1, 0, 0})},
                           {"valid_mask.npy", Npy<uint8_t>("|b1", "(4,)", {1, 0, 0, 0})},
                           {"test_mask.npy", Npy<uint8_t>("|b1", "(4,)", {0, 0, 1, 1})}});
  ASSERT_NE(graph, nullptr);
  const GraphView& view = graph->view();
  EXPECT_EQ(view.nodes, 4u) << "as the labels say";
  EXPECT_THAT(Values(view.in.weights), ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(view.in.timestamps), ElementsAre(-1, -2, -3));
  EXPECT_THAT(Values(view.times), ElementsAre(7, -8, 9, int64_t{1} << 40));
  EXPECT_TRUE(graph->summary().node_times);
  EXPECT_THAT(Values(view.in.edge_ids), ElementsAre(0, 1, 2));
  EXPECT_THAT(Values(view.out.weights), ElementsAre(2, 3, 1));
  EXPECT_THAT(Values(view.splits[2]), ElementsAre(2, 3));
  EXPECT_EQ(graph->summary().num_targets, 2);
  EXPECT_EQ(graph->summary().num_missing_labels, 3);
}

TEST_F(NpyImport, FeaturesOfEveryType) {
  const struct {
    const char* why;
    std::string name, bytes;
    DataType type;
    double max;
  } kCases[] = {
      {"float32", "node_feat.npy", Npy<float>("<f4", "(3, 1)", {1, 2, 2.5f}), DataType::kFloat32, 2.5},
      {"one dimension", "node_feat.npy", Npy<float>("<f4", "(3,)", {1, 2, 2.5f}), DataType::kFloat32, 2.5},
      {"float64, narrowed", "node_feat.npy", Npy<double>("<f8", "(3, 1)", {1, 2, 2.5}), DataType::kFloat32, 2.5},
      {"float16", "node_feat.npy", Npy<uint16_t>("<f2", "(3, 1)", {0x3c00, 0x8001, 0x7bff}), DataType::kFloat16, 65504},
      {"bfloat16", "node_feat_bf16.npy", Npy<uint16_t>("<u2", "(3, 1)", {0x3f80, 0, 0x4020}), DataType::kBfloat16, 2.5},
      {"uint8", "node_feat.npy", Npy<uint8_t>("|u1", "(3, 1)", {1, 255, 0}), DataType::kUint8, 255},
      {"int32", "node_feat.npy", Npy<int32_t>("<i4", "(3, 1)", {-1, 7, 0}), DataType::kInt32, 7},
      {"int64", "node_feat.npy", Npy<int64_t>("<i8", "(3, 1)", {-1, int64_t{1} << 40, 0}), DataType::kInt64, 0x1p40},
  };
  for (const auto& c : kCases) {
    const auto graph = Make({{"edge_index.npy", kEdges}, {c.name, c.bytes}});
    ASSERT_NE(graph, nullptr) << c.why;
    EXPECT_EQ(graph->summary().node_features.type, c.type) << c.why;
    EXPECT_THAT(graph->summary().node_features.max, ElementsAre(c.max)) << c.why;
  }
}

TEST_F(NpyImport, MatricesStoredAndDeflated) {
  for (const bool deflate : {false, true}) {
    const std::string archive = Zip(MatrixMembers(), deflate);
    auto graph = Make({{"adj.npz", archive}});
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(Values(graph->view().in.neighbors), ElementsAre(2, 0, 0)) << "row to column";
    EXPECT_THAT(Values(graph->view().in.weights), ElementsAre(2, 1, 0.5f));
    graph = Make({{"edge_index.npy", kEdges}, {"node_feat.npz", archive}});
    ASSERT_NE(graph, nullptr);
    const auto features = std::get<SparseFeatures>(graph->view().node_features);
    EXPECT_THAT(Values(features.columns), ElementsAre(1, 2, 0));
    EXPECT_THAT(Values(features.values), ElementsAre(1, 0.5f, 2));
  }
  Files members = MatrixMembers();
  members["data.npy"] = Npy<float>("<f4", "(3,)", {1, 1, 1});
  const auto graph = Make({{"adj.npz", Zip(members, true)}});
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(graph->summary().weighted) << "all are 1";
}

TEST_F(NpyImport, RefusesMatricesThatDoNotAddUp) {
  const struct {
    const char* why;
    std::string member, bytes, want;
  } kCases[] = {
      {"columns first", "format.npy", Npy<char>("|S3", "()", {'c', 's', 'c'}),
       "adj.npz: format: is \"csc\", expected csr"},
      {"not square", "shape.npy", Npy<int64_t>("<i8", "(2,)", {3, 4}), "adj.npz: shape: is [3, 4]"},
      {"negative", "shape.npy", Npy<int64_t>("<i8", "(2,)", {-3, 3}), "adj.npz: shape: element [0]: -3 is outside"},
      {"offsets that fall", "indptr.npy", Npy<int32_t>("<i4", "(4,)", {0, 2, 1, 3}),
       "adj.npz: indptr: element [2]: 1 is outside 2..3"},
      {"offsets that end early", "indptr.npy", Npy<int32_t>("<i4", "(4,)", {0, 1, 2, 2}),
       "adj.npz: indptr: element [3]: 2, expected 3"},
      {"offsets beyond", "indptr.npy", Npy<int32_t>("<i4", "(4,)", {0, 2, 3, 4}),
       "adj.npz: indptr: element [3]: 4 is outside 3..3"},
      {"offsets too few", "indptr.npy", Npy<int32_t>("<i4", "(3,)", {0, 2, 3}),
       "adj.npz: indptr: shape: is int32 [3], expected [4]"},
      {"a column beyond", "indices.npy", Npy<int32_t>("<i4", "(3,)", {2, 3, 0}),
       "adj.npz: indices: element [1]: 3 is outside 0..3 - 1"},
      {"values too few", "data.npy", Npy<float>("<f4", "(2,)", {1, 2}),
       "adj.npz: data: shape: is float32 [2], expected [3]"},
      {"a value not finite", "data.npy", Npy<float>("<f4", "(3,)", {1, NAN, 2}),
       "adj.npz: data: element [1]: is not a finite"},
      {"a weight below 0", "data.npy", Npy<float>("<f4", "(3,)", {0.5f, -1, 2}),
       "adj.npz: entry (0, 1): weight: -1 is negative; weights of at least 0 are accepted"},
      {"no other than -1", "data.npy", Npy<float>("<f4", "(3,)", {-1, -1, -1}),
       "adj.npz: entry (0, 2): weight: -1 is negative; weights of at least 0 are accepted"},
  };
  for (const auto& c : kCases) {
    Files members = MatrixMembers();
    members[c.member] = c.bytes;
    EXPECT_THAT(Error({{"adj.npz", Zip(members, true)}}), HasSubstr(c.want)) << c.why;
  }
  Files wide = MatrixMembers();
  wide["shape.npy"] = Npy<int64_t>("<i8", "(2,)", {3, kMaxFeatureColumns + 1});
  EXPECT_THAT(Error({{"edge_index.npy", kEdges}, {"node_feat.npz", Zip(wide, true)}}),
              HasSubstr("node_feat.npz: columns: the matrix has 4194305, expected at most 4194304"));
  EXPECT_THAT(Error({{"adj.npz", "no zip"}}), HasSubstr("adj.npz: is no ZIP archive"));
  std::string damaged = Zip(MatrixMembers(), /*deflate=*/false);
  damaged[damaged.find(Npy<float>("<f4", "(3,)", {0.5f, 1, 2})) + 130] ^= 1;
  EXPECT_THAT(Error({{"adj.npz", damaged}}), HasSubstr("adj.npz: data: corrupt zip: CRC error"));
}

TEST_F(NpyImport, RefusesArraysThatCannotBe) {
  const std::string good = kEdges;
  const struct {
    const char* why;
    std::string name, bytes, want;
  } kCases[] = {
      {"no array", "edge_index.npy", "0,1\n1,2\n0,1\n", "edge_index.npy: is no NPY array"},
      {"cut in the header", "edge_index.npy", good.substr(0, 50), "edge_index.npy: ends before its header says"},
      {"cut in the data", "edge_index.npy", good.substr(0, good.size() - 1),
       "edge_index.npy: ends before its header says"},
      {"longer than it says", "edge_index.npy", good + "x", "edge_index.npy: goes on after its int64 [2, 3]"},
      {"version", "edge_index.npy", std::string(good).replace(6, 1, "\x04"),
       "edge_index.npy: version: 4 is outside 1..3"},
      {"columns first", "edge_index.npy", Npy<int64_t>("<i8", "(2, 1)", {0, 1}, "True"),
       "edge_index.npy: header: fortran_order: is True"},
      {"big-endian", "edge_index.npy", Npy<int64_t>(">i8", "(2, 1)", {0, 1}), "\">i8\" is big-endian"},
      {"floats", "edge_index.npy", Npy<double>("<f8", "(2, 1)", {0, 1}),
       "edge_index.npy: descr: <f8, expected integers"},
      {"objects", "edge_index.npy", Npy<int64_t>("|O", "(2, 1)", {0, 1}), "descr: \"|O\" is not a type that is read"},
      {"shape", "edge_index.npy", Npy<int64_t>("<i8", "(3, 3)", std::vector<int64_t>(9)),
       "shape: is int64 [3, 3], expected [2, edges] or [edges, 2]"},
      {"an id below", "edge_index.npy", Npy<int64_t>("<i8", "(2, 2)", {0, 1, 2, -7}),
       "edge_index.npy: element [1, 1]: -7 is outside 0.."},
      {"an id of no node", "node_label.npy", Npy<int64_t>("<i8", "(2,)", {0, 1}),
       "edge_index.npy: element [0, 0]: 2 is outside 0..1 (2 nodes, as node_label.npy has)"},
      {"a class that no float holds", "node_label.npy", Npy<int64_t>("<i8", "(3,)", {0, 1, 16777217}),
       "node_label.npy: element [2]: 16777217 is outside"},
      {"features not finite", "node_feat.npy", Npy<float>("<f4", "(3, 2)", {0, 1, 2, INFINITY, 4, 5}),
       "node_feat.npy: element [1, 1]: is not a finite number"},
      {"features of a type not kept", "node_feat.npy", Npy<uint32_t>("<u4", "(3,)", {0, 1, 2}),
       "node_feat.npy: descr: <u4, expected one of <f4"},
      {"uint16 without the name that says bfloat16", "node_feat.npy", Npy<uint16_t>("<u2", "(3,)", {0, 1, 2}),
       "node_feat.npy: descr: <u2, expected one of"},
      {"positions not finite", "node_pos.npy", Npy<float>("<f4", "(3, 1)", {0, 1, NAN}),
       "node_pos.npy: element [2, 0]: is not a finite number"},
      {"too many columns of positions", "node_pos.npy", Npy<float>("<f4", "(3, 17)", std::vector<float>(51)),
       "node_pos.npy: 17 columns; 1..16 are accepted for positions"},
      {"weights too few", "edge_weight.npy", Npy<float>("<f4", "(2,)", {0, 1}),
       "edge_weight.npy: shape: is float32 [2], expected [3], one an edge"},
      {"a shape beyond any file", "node_feat.npy", Npy<float>("<f4", "(3, 9223372036854775807)", {0}),
       "is more than a file can hold"},
  };
  for (const auto& c : kCases) {
    Files files = {{"edge_index.npy", good}};
    files[c.name] = c.bytes;
    EXPECT_THAT(Error(files), HasSubstr(c.want)) << c.why;
  }
}

TEST_F(NpyImport, TimesAndPositionsOfNodesAreRenumberedWithThem) {
  // Node 2 has the highest out-degree and becomes row 0.
  ImportOptions options = Options({{"edge_index.npy", Npy<int64_t>("<i8", "(2, 3)", {2, 2, 2, 0, 1, 3})},
                                   {"node_pos.npy", Npy<float>("<f4", "(4, 2)", {0, -0.5F, 1, -1, 2, -2, 3, -3})},
                                   {"node_time.npy", Npy<int64_t>("<i8", "(4,)", {70, 71, 72, 73})}});
  options.order = NodeOrder::kDegree;
  const auto graph = MakeGraph(temp_.path() / "store", options);
  ASSERT_NE(graph, nullptr);
  const std::vector<uint64_t> names = Values(graph->names().numbers);
  EXPECT_EQ(names[0], 2U);
  const std::vector<int64_t> times = Values(graph->view().times);
  ASSERT_EQ(times.size(), 4U);
  for (size_t row = 0; row < 4; ++row) EXPECT_EQ(times[row], 70 + static_cast<int64_t>(names[row]));
  EXPECT_EQ(graph->summary().position_columns, 2);
  std::vector<float> positions(8);
  ASSERT_TRUE(ReadRows(std::get<DenseFeatures>(graph->view().positions), 0, 4, positions.data()).ok());
  for (size_t row = 0; row < 4; ++row) EXPECT_EQ(positions[2 * row], static_cast<float>(names[row]));
}

TEST_F(NpyImport, RefusesFilesThatContradictEachOther) {
  const std::string matrix = Zip(MatrixMembers(), true), weights = Npy<float>("<f4", "(3,)", {1, 2, 3});
  EXPECT_THAT(Error({{"edge_index.npy", kEdges}, {"adj.npz", matrix}}),
              HasSubstr("adj.npz: stands beside edge_index.npy"));
  EXPECT_THAT(Error({{"edge_weight.npy", weights}, {"adj.npz", matrix}}),
              HasSubstr("edge_weight.npy: stands beside adj.npz"));
  const auto lone =
      ImportGraphInto(temp_.path() / "store", Options({{"edge_index.npy", kEdges}, {"train_idx.npy", weights}}));
  EXPECT_EQ(lone.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(lone.status().message()), HasSubstr("valid_idx.npy: not found"));
}

}  // namespace
}  // namespace permafrost::data
