// Sources that divide the links themselves, in both layouts that allow it.
#include "data/import/split_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Pairs(const std::vector<int64_t>& values) {
  return Npy<int64_t>("<i8", "(" + std::to_string(values.size() / 2) + ", 2)", values);
}

// Six nodes in a ring. Validation has three negative targets per link. Test has two negative pairs in all.
Files NpySource() {
  return {{"edge_index.npy", Npy<int64_t>("<i8", "(2, 6)", {0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0})},
          {"split/links/train.npy", Pairs({0, 1, 2, 3})},
          {"split/links/valid.npy", Npy<int32_t>("<i4", "(1, 2)", {4, 3})},
          {"split/links/test.npy", Pairs({5, 0, 1, 2, 5, 4})},
          {"split/links/valid_negatives.npy", Npy<int64_t>("<i8", "(1, 3)", {0, 1, 2})},
          {"split/links/test_negatives.npy", Pairs({5, 2, 0, 3})}};
}

Files OgbSource() {
  Files files = NpySource();
  files.erase("edge_index.npy");
  files["raw/num-node-list.csv"] = "6\n";
  files["raw/edge.csv"] = "0,1\n1,2\n2,3\n3,4\n4,5\n5,0\n";
  return files;
}

class LinkFilesTest : public ::testing::Test {
 protected:
  ImportOptions Options(const Files& files) {
    fs::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    return {.source = temp_.path() / "source"};
  }
  absl::Status StatusOf(const Files& files) { return ImportGraphInto(temp_.path() / "store", Options(files)).status(); }
  TempDir temp_;
};

TEST_F(LinkFilesTest, AreInTheStoreAsTheFilesSay) {
  Files with_pickles = OgbSource();
  with_pickles["split/time/train.pt"] = "a pickle";
  for (const Files& files : {NpySource(), OgbSource(), with_pickles}) {
    const auto graph = MakeGraph(temp_.path() / "store", Options(files));
    ASSERT_NE(graph, nullptr);
    const GivenLinksSummary& links = graph->summary().links;
    EXPECT_TRUE(links.given);
    EXPECT_EQ(links.of(Split::kTrain), (GivenLinksSummary::Part{.links = 2}));
    EXPECT_EQ(links.of(Split::kValid), (GivenLinksSummary::Part{.links = 1, .negatives = 3}));
    EXPECT_EQ(links.of(Split::kTest), (GivenLinksSummary::Part{.links = 3, .pairs = 2}));
    const GivenLinks& given = graph->view().given_links;
    EXPECT_THAT(Values(given.links[0]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(Values(given.links[1]), ElementsAre(4, 3));
    EXPECT_THAT(Values(given.links[2]), ElementsAre(5, 0, 1, 2, 5, 4));
    EXPECT_THAT(Values(given.negatives[0]), IsEmpty());
    EXPECT_THAT(Values(given.negatives[1]), ElementsAre(0, 1, 2));
    EXPECT_THAT(Values(given.negatives[2]), ElementsAre(5, 2, 0, 3));
  }
}

TEST_F(LinkFilesTest, RowsAreRenumberedWithTheNodes) {
  Files files = NpySource();
  // Node 3 has the most edges and becomes row 0.
  files["edge_index.npy"] = Npy<int64_t>("<i8", "(2, 8)", {0, 1, 2, 3, 4, 5, 0, 1, 1, 2, 3, 4, 5, 0, 3, 3});
  ImportOptions options = Options(files);
  options.order = NodeOrder::kDegree;
  const auto graph = MakeGraph(temp_.path() / "store", options);
  ASSERT_NE(graph, nullptr);
  const std::vector<uint64_t> names = Values(graph->names().numbers);
  EXPECT_EQ(names[0], 3U);
  const auto named = [&names](const Column<NodeId>& column) {
    std::vector<uint64_t> out;
    for (const NodeId row : Values(column)) out.push_back(names[row]);
    return out;
  };
  EXPECT_THAT(named(graph->view().given_links.links[2]), ElementsAre(5, 0, 1, 2, 5, 4));
  EXPECT_THAT(named(graph->view().given_links.negatives[1]), ElementsAre(0, 1, 2));
  EXPECT_THAT(named(graph->view().given_links.negatives[2]), ElementsAre(5, 2, 0, 3));
}

TEST_F(LinkFilesTest, NegativesAndHeldOutLinksMayBeMissing) {
  Files files = NpySource();
  files.erase("split/links/valid_negatives.npy");
  files["split/links/test_negatives.npy"] = Npy<int64_t>("<i8", "(0, 2)", {});
  files["split/links/valid.npy"] = Npy<int64_t>("<i8", "(0, 2)", {});
  const auto graph = MakeGraph(temp_.path() / "store", Options(files));
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->summary().links.of(Split::kValid), GivenLinksSummary::Part());
  EXPECT_EQ(graph->summary().links.of(Split::kTest), (GivenLinksSummary::Part{.links = 3}));
}

TEST_F(LinkFilesTest, WhatCannotBeIsRefusedInALine) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  const struct {
    const char* why;
    const char* file;
    std::string bytes;  // "" stands for a removed file
    absl::StatusCode code;
    const char* want;
  } kCases[] = {
      {"a node that there is not", "split/links/test.npy", Pairs({5, 0, 1, 6}), kInvalid,
       "split/links/test.npy: element [1, 1]: 6 is outside 0..5 (as "},
      {"a negative node", "split/links/valid_negatives.npy", Npy<int64_t>("<i8", "(1, 3)", {0, -1, 2}), kInvalid,
       "split/links/valid_negatives.npy: element [0, 1]: -1 is outside 0..5"},
      {"three columns of links", "split/links/train.npy", Npy<int64_t>("<i8", "(1, 3)", {0, 1, 2}), kInvalid,
       "split/links/train.npy: shape: is int64 [1, 3], expected [links, 2]"},
      {"targets of other links", "split/links/valid_negatives.npy", Npy<int64_t>("<i8", "(2, 1)", {0, 1}), kInvalid,
       "split/links/valid_negatives.npy: shape: is int64 [2, 1], expected [1, K]"},
      {"no training links", "split/links/train.npy", "", kNotFound,
       "split/links/train.npy: not found; all of train, valid and test are needed, or none"},
      {"fractions", "split/links/train.npy", Npy<float>("<f4", "(1, 2)", {0, 1}), kInvalid, "split/links/train.npy"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    for (Files files : {NpySource(), OgbSource()}) {
      files[c.file] = c.bytes;
      if (c.bytes.empty()) files.erase(c.file);
      const absl::Status status = StatusOf(files);
      EXPECT_EQ(status.code(), c.code);
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
      EXPECT_EQ(status.message().find('\n'), std::string::npos);
    }
  }
}

TEST_F(LinkFilesTest, PicklesAreNeverRead) {
  Files files = {{"raw/num-node-list.csv", "2\n"}, {"raw/edge.csv", "0,1\n"}};
  for (const char* part : {"train", "valid", "test"}) files[std::string("split/time/") + part + ".pt"] = "a pickle";
  const absl::Status status = StatusOf(files);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("train.pt beside it is a pickle, which is never read"));
}

}  // namespace
}  // namespace permafrost::data
