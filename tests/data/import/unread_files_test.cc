#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/graph_folder.h"
#include "data/import/tu_sets.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path TrialFolder(const std::string& name) {
  return std::filesystem::path(PERMAFROST_SOURCE_DIR) / "tests" / "trials" / name;
}

std::string ZstdOf(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

Files OneGraph() {
  return {
      {"raw/num-node-list.csv", "4\n"}, {"raw/edge.csv", "0,1\n1,2\n2,3\n"}, {"raw/node-label.csv", "0\n1\n0\n1\n"}};
}
Files ArrayGraph() { return {{"edge_index.npy", Npy<int64_t>("<i8", "(2, 3)", {0, 1, 2, 1, 2, 3})}}; }

class UnreadFilesTest : public ::testing::Test {
 protected:
  absl::StatusOr<ImportedSummary> ImportOf(const Files& files, ImportOptions options = {}) {
    std::filesystem::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    if (options.source.empty()) options.source = temp_.path() / "source";
    std::filesystem::remove_all(temp_.path() / "store");
    std::filesystem::create_directories(temp_.path() / "store");
    return Import(options, temp_.path() / "store", /*observer=*/{}, std::stop_token());
  }
  static std::vector<std::string> NotesOf(const absl::StatusOr<ImportedSummary>& summary) {
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (!summary.ok()) return {};
    return std::visit([](const auto& s) { return s.notes; }, *summary);
  }
  TempDir temp_;
};

TEST_F(UnreadFilesTest, ZstdIsReadWhereverGzipIs) {
  const auto zst = MakeGraph(temp_.path() / "store", {.source = TrialFolder("unread-files/zst")});
  ASSERT_NE(zst, nullptr);
  EXPECT_EQ(zst->summary().node_features.width, 2);
  EXPECT_THAT(zst->summary().notes, ElementsAre(HasSubstr("inverse edges: added")));
  Files set;
  for (const auto& [name, text] : SmallSet()) set[name + ".zst"] = ZstdOf(text);
  const auto summary = ImportOf(set);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto& of_set = std::get<GraphSetSummary>(*summary);
  EXPECT_EQ(of_set.all.graphs, 3);
  EXPECT_EQ(of_set.node_features.width, 2);
  EXPECT_EQ(of_set.split_name, "plain");
}

TEST_F(UnreadFilesTest, AStaleFormOfATableIsRefused) {
  const auto stale = ImportOf({}, {.source = TrialFolder("stale")});
  EXPECT_EQ(stale.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(stale.status().message()),
            "raw/edge.csv: stands beside raw/edge.csv.gz, which is read; one of them is accepted");
  Files arrays = OneGraph();
  arrays["raw/node-label.npy"] = Npy<int64_t>("<i8", "(4,)", {0, 1, 0, 1});
  EXPECT_EQ(std::string(ImportOf(arrays).status().message()),
            "raw/node-label.csv: stands beside raw/node-label.npy, which is read; one of them is accepted");
  Files masks = ArrayGraph();
  for (const char* name : {"train", "valid", "test"}) {
    masks[std::string(name) + "_idx.npy"] = Npy<int64_t>("<i8", "(0,)", {});
    masks[std::string(name) + "_mask.npy"] = Npy<uint8_t>("|b1", "(4,)", {0, 0, 0, 0});
  }
  EXPECT_THAT(std::string(ImportOf(masks).status().message()), HasSubstr("test_mask.npy: stands beside test_idx.npy"));
}

TEST_F(UnreadFilesTest, WhatWasSurelyMeantIsRefusedWithTheRightName) {
  const struct {
    const char* why;
    Files files;
    std::string name, accepted;
  } kCases[] = {
      {"an underscore", OneGraph(), "raw/node_feat.csv", "raw/node-feat.csv"},
      {"another case", OneGraph(), "raw/Node-Feat.csv", "raw/node-feat.csv"},
      {"the case of the ending", OneGraph(), "raw/node-feat.CSV.GZ", "raw/node-feat.csv.gz"},
      {"the whole word", OneGraph(), "raw/node_features.npy", "raw/node-feat.npy"},
      {"an ending that is not read", OneGraph(), "raw/node-feat.csv.bz2",
       "raw/node-feat.csv, raw/node-feat.csv.gz, raw/node-feat.csv.zst, raw/node-feat.npy"},
      {"no ending", OneGraph(), "raw/edge-weight",
       "raw/edge-weight.csv, raw/edge-weight.csv.gz, raw/edge-weight.csv.zst, raw/edge-weight.npy"},
      {"swapped letters", OneGraph(), "raw/node-faet.csv", "raw/node-feat.csv"},
      {"two edits", OneGraph(), "raw/edge-wieghts.csv", "raw/edge-weight.csv"},
      {"the wrong folder", OneGraph(), "node-feat.csv", "raw/node-feat.csv"},
      {"what makes it a set", OneGraph(), "raw/graph-labels.csv", "raw/graph-label.csv"},
      {"an archive for an array", ArrayGraph(), "node_label.npz", "node_label.npy"},
      {"features of arrays", ArrayGraph(), "node_features.npy", "node_feat.npy"},
      {"a hyphen", ArrayGraph(), "node-label.npy", "node_label.npy"},
      {"PyG's name", ArrayGraph(), "val_mask.npy", "valid_mask.npy"},
      {"a packed table of a TUDataset", SmallTu(), "S_node_labels.txt.gz", "S_node_labels.txt"},
      {"a TUDataset's without its s", SmallTu(), "S_node_label.txt", "S_node_labels.txt"},
  };
  for (const auto& c : kCases) {
    Files files = c.files;
    files[c.name] = "1\n";
    const auto summary = ImportOf(files);
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << summary.status();
    EXPECT_EQ(std::string(summary.status().message()),
              c.name + ": no file of this name is read; accepted: " + c.accepted + ", or a source without it")
        << c.why;
  }
}

TEST_F(UnreadFilesTest, OtherFilesAreNamed) {
  Files graph = OneGraph();
  for (const char* name : {"README.md", "LICENSE", "SOURCE.md", "RELEASE_v1.txt", "mapping/labelidx2category.csv.gz",
                           "raw/node_year.csv.gz", "raw/node_species.csv", "raw/edge-feat.md5", "processed/data.pt",
                           "train.csv", "valid.csv", ".hidden/x.csv", "raw/.node-feat.csv.swp"}) {
    graph[name] = "1\n";
  }
  EXPECT_THAT(NotesOf(ImportOf(graph)),
              Contains("files that were not read: LICENSE, README.md, RELEASE_v1.txt, SOURCE.md, "
                       "mapping/labelidx2category.csv.gz, processed/data.pt, raw/edge-feat.md5, raw/node_species.csv, "
                       "raw/node_year.csv.gz, train.csv and 1 others"));
  Files arrays = ArrayGraph();
  for (const char* name : {"node_type.npy", "edge_type.npy", "node_year.npy", "edge_label.npy"}) arrays[name] = "1\n";
  EXPECT_THAT(NotesOf(ImportOf(arrays)),
              Contains("files that were not read: edge_label.npy, edge_type.npy, node_type.npy, node_year.npy"));
  EXPECT_THAT(NotesOf(ImportOf(ArrayGraph())), ElementsAre(HasSubstr("inverse edges"))) << "nothing else is there";
}

TEST_F(UnreadFilesTest, OfAnArchiveAndByTheOptionsChoiceToo) {
  Files members = SmallTu();
  members["S_node_labels.txt"] = "1\n1\n2\n1\n2\n2\n";
  members["README.txt"] = "hello\n";
  const std::string archive = ZipOf(temp_.path() / "S.zip", members);
  EXPECT_THAT(NotesOf(ImportOf({}, {.source = archive})), ElementsAre("files that were not read: README.txt"));
  EXPECT_THAT(NotesOf(ImportOf({}, {.source = archive, .tu = {.node_features = TuNodeFeatures::kDegree}})),
              ElementsAre("files that were not read: README.txt, S_node_labels.txt"));
  members["S_node_label.txt"] = "1\n";
  members.erase("S_node_labels.txt");
  EXPECT_THAT(std::string(ImportOf({}, {.source = ZipOf(temp_.path() / "T.zip", members)}).status().message()),
              AllOf(HasSubstr("S_node_label.txt"), HasSubstr("S_node_labels.txt")));
}

TEST_F(UnreadFilesTest, ANameOfAnyBytesIsOneShortLine) {
  Files graph = OneGraph();
  graph["raw/a\nb"] = "1\n";
  graph["raw/" + std::string(200, 'x')] = "1\n";
  const auto notes = NotesOf(ImportOf(graph));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("raw/a\\nb"), HasSubstr("xxx..."))));
  for (const std::string& note : notes) EXPECT_LT(note.size(), 300u);
}

}  // namespace
}  // namespace permafrost::data
