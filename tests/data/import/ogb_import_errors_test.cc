#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "data/ogb_folder.h"
#include "data/source/failing_disk.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(OgbImport, EveryBadInputIsOneLineThatNamesIt) {
  const std::string edges = SmallSet()["raw/edge.csv"];
  const std::string zipped = Gzip(edges);
  std::string flipped = zipped;
  flipped[flipped.size() - 6] ^= 1;  // a bit of the checksum
  std::string bad_magic = zipped;
  bad_magic[0] = 'x';
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  const struct {
    const char* why;
    std::string file;
    std::optional<std::string> text;  // nullopt stands for a removed file
    absl::StatusCode code;
    std::string want;
  } kCases[] = {
      {"missing counts", "raw/num-node-list.csv", std::nullopt, kNotFound,
       "raw/num-node-list.csv.gz: not found, nor raw/num-node-list.csv"},
      {"missing edges", "raw/edge.csv", std::nullopt, kNotFound, "raw/edge.csv.gz: not found, nor raw/edge.csv"},
      {"missing split file", "split/plain/valid.csv", std::nullopt, kNotFound,
       "split/plain/valid.csv.gz: not found, nor split/plain/valid.csv"},
      {"node count no integer", "raw/num-node-list.csv", "3\nx\n1\n", kInvalid,
       "raw/num-node-list.csv:2: nodes: \"x\" is not an integer"},
      {"node count negative", "raw/num-node-list.csv", "3\n1\n-1\n", kInvalid,
       "raw/num-node-list.csv:3: nodes: -1 is outside 0..2147483647"},
      {"node count beyond 64 bits", "raw/num-node-list.csv", "3\n1\n99999999999999999999\n", kInvalid,
       "raw/num-node-list.csv:3: nodes: 99999999999999999999 is outside 0..2147483647"},
      {"node count with a fraction", "raw/num-node-list.csv", "3\n1\n1.0\n", kInvalid, "\"1.0\" is not an integer"},
      {"two node counts a row", "raw/num-node-list.csv", "3,1\n1\n", kInvalid,
       "raw/num-node-list.csv:1: columns: the row has 2, expected 1"},
      {"an empty line among node counts", "raw/num-node-list.csv", "3\n\n1\n1\n", kInvalid,
       "raw/num-node-list.csv:2: the line is empty"},
      {"fewer edge counts than graphs", "raw/num-edge-list.csv", "4\n0\n", kInvalid,
       "raw/num-edge-list.csv: rows: the file has 2, expected 3 (one a graph, as raw/num-node-list.csv)"},
      {"more edge counts than graphs", "raw/num-edge-list.csv", "4\n0\n1\n0\n\n", kInvalid,
       "raw/num-edge-list.csv: rows: the file has 4, expected 3"},
      {"fewer edges than counted", "raw/edge.csv", "2,0\n0,1\n2,0\n1,2\n", kInvalid,
       "raw/edge.csv: rows: the file has 4, expected 5 (the sum of raw/num-edge-list.csv)"},
      {"more edges than counted", "raw/edge.csv", edges + "0,0\n0,0\n", kInvalid,
       "raw/edge.csv: rows: the file has 7, expected 5"},
      {"a target that the graph has not", "raw/edge.csv", "2,0\n0,9\n2,0\n1,2\n0,0\n", kInvalid,
       "raw/edge.csv:2: target: 9 is outside 0..2 (graph 0 has 3 nodes)"},
      {"ids run within a graph, not over the set", "raw/edge.csv", "2,0\n0,1\n2,0\n1,2\n4,0\n", kInvalid,
       "raw/edge.csv:5: source: 4 is outside 0..0 (graph 2 has 1 node)"},
      {"a negative source", "raw/edge.csv", "-1,0\n0,1\n2,0\n1,2\n0,0\n", kInvalid,
       "raw/edge.csv:1: source: -1 is outside 0..2"},
      {"an edge end no integer", "raw/edge.csv", "2,0\n0,one\n2,0\n1,2\n0,0\n", kInvalid,
       "raw/edge.csv:2: target: \"one\" is not an integer"},
      {"an edge of three ends", "raw/edge.csv", "2,0\n0,1,2\n2,0\n1,2\n0,0\n", kInvalid,
       "raw/edge.csv:2: columns: the row has 3, expected 2 (source, target)"},
      {"an edge of one end", "raw/edge.csv", "2\n0,1\n2,0\n1,2\n0,0\n", kInvalid,
       "raw/edge.csv:1: columns: the row has 1, expected 2"},
      {"an edge of a graph without nodes", "raw/num-node-list.csv", "4\n1\n0\n", kInvalid,
       "raw/edge.csv:5: source: 0 cannot be: graph 2 has no nodes"},
      {"a ragged row of node features", "raw/node-feat.csv", "1,10\n2\n3,30\n4,40\n5,50\n", kInvalid,
       "raw/node-feat.csv:2: columns: the row has 1, expected 2 (as the rows before)"},
      {"a node feature too many", "raw/node-feat.csv", "1,10\n2,20\n3,30,300\n4,40\n5,50\n", kInvalid,
       "raw/node-feat.csv:3: columns: the row has 3, expected 2"},
      {"a node feature no number", "raw/node-feat.csv", "1,10\n2,x\n3,30\n4,40\n5,50\n", kInvalid,
       "raw/node-feat.csv:2: column 2: \"x\" is not a finite number"},
      {"a node feature missing", "raw/node-feat.csv", "1,10\n2,\n3,30\n4,40\n5,50\n", kInvalid,
       "raw/node-feat.csv:2: column 2: \"\" is not a finite number"},
      {"a node feature not finite", "raw/node-feat.csv", "1,10\n2,nan\n3,30\n4,40\n5,50\n", kInvalid,
       "\"nan\" is not a finite number"},
      {"a node feature beyond float", "raw/node-feat.csv", "1,10\n2,1e39\n3,30\n4,40\n5,50\n", kInvalid,
       "\"1e39\" is out of float32's range"},
      {"an integer feature beyond 32 bits", "raw/node-feat.csv", "1,10\n2,3000000000\n3,30\n4,40\n5,50\n", kInvalid,
       "raw/node-feat.csv:2: column 2: \"3000000000\" is outside -2147483648..2147483647"},
      {"fewer node features than nodes", "raw/node-feat.csv", "1,10\n2,20\n", kInvalid,
       "raw/node-feat.csv: rows: the file has 2, expected 5 (the sum of raw/num-node-list.csv)"},
      {"more node features than nodes", "raw/node-feat.csv", "1\n2\n3\n4\n5\n6\n", kInvalid,
       "raw/node-feat.csv: rows: the file has 6, expected 5"},
      {"a ragged row of positions", "raw/node-pos.csv", "1,2,3\n1,2\n3,3,3\n4,4,4\n5,5,5\n", kInvalid,
       "raw/node-pos.csv:2: columns: the row has 2, expected 3 (as the rows before)"},
      {"a position no number", "raw/node-pos.csv", "1\n2\nx\n4\n5\n", kInvalid,
       "raw/node-pos.csv:3: column 1: \"x\" is not a finite number"},
      {"a position not finite", "raw/node-pos.csv", "1\n2\n3\n4\n-inf\n", kInvalid,
       "raw/node-pos.csv:5: column 1: \"-inf\" is not a finite number"},
      {"too many columns of positions", "raw/node-pos.csv", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n", kInvalid,
       "raw/node-pos.csv:1: 17 columns; 1..16 are accepted for positions"},
      {"fewer positions than nodes", "raw/node-pos.csv", "1\n2\n", kInvalid,
       "raw/node-pos.csv: rows: the file has 2, expected 5 (the sum of raw/num-node-list.csv)"},
      {"more positions than nodes", "raw/node-pos.csv", "1\n2\n3\n4\n5\n6\n", kInvalid,
       "raw/node-pos.csv: rows: the file has 6, expected 5"},
      {"fewer edge features than edges", "raw/edge-feat.csv", "1\n2\n3\n4\n", kInvalid,
       "raw/edge-feat.csv: rows: the file has 4, expected 5 (the sum of raw/num-edge-list.csv)"},
      {"more edge features than edges", "raw/edge-feat.csv", "1\n2\n3\n4\n5\n6\n", kInvalid,
       "raw/edge-feat.csv: rows: the file has 6, expected 5"},
      {"a ragged row of edge features, once they are floats", "raw/edge-feat.csv", "1\n2\n3\n4.5\n5,5\n", kInvalid,
       "raw/edge-feat.csv:5: columns: the row has 2, expected 1"},
      {"fewer labels than graphs", "raw/graph-label.csv", "1\n2\n", kInvalid,
       "raw/graph-label.csv: rows: the file has 2, expected 3 (one a graph, as raw/num-node-list.csv)"},
      {"more labels than graphs", "raw/graph-label.csv", "1\n2\n3\n4\n", kInvalid,
       "raw/graph-label.csv: rows: the file has 4, expected 3"},
      {"ragged labels", "raw/graph-label.csv", "1,1\n2\n3,3\n", kInvalid,
       "raw/graph-label.csv:2: columns: the row has 1, expected 2"},
      {"a label no number", "raw/graph-label.csv", "1\ntwo\n3\n", kInvalid,
       "raw/graph-label.csv:2: target 1: \"two\" is neither a finite number nor missing"},
      {"a label not finite", "raw/graph-label.csv", "1\ninf\n3\n", kInvalid, "\"inf\" is neither a finite number"},
      {"bytes that are no text", "raw/graph-label.csv", std::string("1\n\x01\xff\n3\n"), kInvalid,
       "\"\\x01\\xff\" is neither a finite number"},
      {"a split id beyond the set", "split/plain/test.csv", "3\n", kInvalid,
       "split/plain/test.csv:1: graph: 3 is outside 0..2"},
      {"a split id negative", "split/plain/test.csv", "-1\n", kInvalid, "graph: -1 is outside 0..2"},
      {"a split id no integer", "split/plain/test.csv", "a\n", kInvalid, "graph: \"a\" is not an integer"},
      {"a graph twice in a split", "split/plain/train.csv", "0\n2\n0\n", kInvalid,
       "split/plain/train.csv:3: graph: 0 stands already in split/plain/train.csv:1"},
      {"a graph in two splits", "split/plain/test.csv", "0\n", kInvalid,
       "split/plain/test.csv:1: graph: 0 stands already in split/plain/train.csv:2"},
      {"a truncated gzip", "raw/edge.csv.gz", zipped.substr(0, zipped.size() - 9), kInvalid,
       "truncated gzip: the file ends before its compressed data does"},
      {"a gzip without its trailer", "raw/edge.csv.gz", zipped.substr(0, zipped.size() - 4), kInvalid,
       "raw/edge.csv.gz:6: truncated gzip"},
      {"an empty gzip", "raw/edge.csv.gz", "", kInvalid, "raw/edge.csv.gz:1: truncated gzip"},
      {"a gzip with a flipped bit", "raw/edge.csv.gz", flipped, kInvalid, "raw/edge.csv.gz:6: corrupt gzip"},
      {"a gzip that is none", "raw/edge.csv.gz", bad_magic, kInvalid,
       "raw/edge.csv.gz:1: corrupt gzip: incorrect header check"},
      {"something behind the gzip", "raw/edge.csv.gz", zipped + "tail", kInvalid, "raw/edge.csv.gz:6: corrupt gzip"},
      {"a second split to choose from", "split/other/train.csv", "", kInvalid,
       "options.split: empty, but the source has several; name one of other, plain"},
      {"a directory for a file", "raw/edge.csv.gz/x", "", kInvalid, "raw/edge.csv.gz: is no regular file"},
      {"a line without end", "raw/edge.csv", std::string((1 << 24) + 10, '1'), kInvalid,
       "raw/edge.csv:1: the line is longer than 16777216 bytes"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    Files files = SmallSet();
    files.erase(c.file);
    if (c.file.starts_with("raw/edge.csv.gz")) files.erase("raw/edge.csv");
    if (c.text) files[c.file] = *c.text;
    WriteFiles(temp.path() / "source", files);
    const auto result = ImportInto(temp.path() / "store", {.source = temp.path() / "source", .split = {}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), c.code) << result.status();
    const std::string message(result.status().message());
    EXPECT_THAT(message, HasSubstr(c.want));
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(temp.path() / "store" / GraphSet::kFileName));
  }
}

TEST(OgbImport, ASourceThatCannotBeLookedAtJustNowIsTheMachines) {
  TempDir temp;
  const fs::path source = temp.path() / "source", store = temp.path() / "store";
  WriteFiles(source, SmallSet());
  fs::create_directories(store);
  absl::Status status;
  const bool failing = WithoutStat(EIO, [&] {
    status = Import({.source = source, .split = {}}, store, /*observer=*/{}, std::stop_token()).status();
  });
  if (!failing) GTEST_SKIP() << "no call can be made to fail here";
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(IsTransient(status)) << status;
  EXPECT_EQ(std::string(status.message()), source.string() + ": cannot look at it: Input/output error");
}

// Trying again does not help with a circle of links.
TEST(OgbImport, ASourceThatCanNeverBeLookedAtIsAtFault) {
  TempDir temp;
  fs::create_symlink("circle", temp.path() / "circle");
  fs::create_directories(temp.path() / "source" / "raw");
  fs::create_symlink("graph-label.csv", temp.path() / "source" / "raw" / "graph-label.csv");
  const struct {
    fs::path source;
    std::string want;
  } kCases[] = {
      {temp.path() / "circle", "/circle: cannot look at it: Too many levels of symbolic links"},
      {temp.path() / "source", "raw/graph-label.csv: cannot look at it: Too many levels of symbolic links"},
  };
  for (const auto& c : kCases) {
    const absl::Status status =
        Import({.source = c.source, .split = {}}, temp.path() / "store", /*observer=*/{}, std::stop_token()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_FALSE(IsTransient(status)) << c.want;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
  }
}

// If the folder were taken for empty, the wanted split would be missing, or a split would be drawn.
TEST(OgbImport, SplitsThatCannotBeListedJustNowAreNotMissing) {
  TempDir temp;
  const fs::path source = temp.path() / "source", store = temp.path() / "store";
  WriteFiles(source, SmallSet());
  fs::create_directories(store);
  for (const char* split : {"", "plain"}) {
    absl::Status status;
    {
      const NoDescriptors none;
      status = ImportOgbGraphs({.source = source, .split = split}, store, {}, {}).status();
    }
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("split: cannot list: "));
  }
}

TEST(OgbImport, MemoryIsBoundedWhateverTheSourceSays) {
  Files many = SmallSet();
  std::string counts;
  for (int i = 0; i < 100000; ++i) counts += "0\n";
  many.erase("raw/num-node-list.csv");
  many["raw/num-node-list.csv.gz"] = Gzip(counts);
  Files wide = SmallSet();
  std::string row = "1";
  for (int i = 1; i < 200; ++i) row += ",1";
  wide["raw/edge-feat.csv"] = row + "\n" + row + "\n" + row + "\n" + row + "\n" + row + "\n";
  Files dense = SmallSet();
  dense["raw/num-edge-list.csv"] = "4\n0\n2000000000\n";
  const struct {
    const char* why;
    Files files;
    uint64_t memory_bytes;
    const char* want;  // null stands for Ok
  } kCases[] = {
      {"a small gzip of many graphs", many, 48'000,
       "raw/num-node-list.csv.gz:1001: 1001 graphs take more memory than an import's limit, 48000 bytes (1000 at 48 "
       "bytes each)"},
      {"one graph of many edges", dense, 1 << 30,
       "raw/num-edge-list.csv:3: 4000000000 edges of one graph take more memory than an import's limit, "},
      {"wide features of one graph's edges", wide, 6000,
       "raw/edge-feat.csv:3: 2400 bytes of one graph's edge features take more memory than an import's limit, 6000 "
       "bytes"},
      {"just enough", SmallSet(), 576, nullptr},
      {"just not", SmallSet(), 575, "raw/num-edge-list.csv:1: 8 edges of one graph take more memory"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    WriteFiles(temp.path() / "source", c.files);
    fs::create_directories(temp.path() / "store");
    const auto result = ImportOgbGraphs({.source = temp.path() / "source", .split = {}}, temp.path() / "store", {}, {},
                                        {.memory_bytes = c.memory_bytes});
    if (c.want == nullptr) {
      EXPECT_TRUE(result.ok()) << result.status();
      continue;
    }
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(c.want));
  }
}

TEST(OgbImport, TheDefaultMemoryIsAShareOfTheMachines) {
  EXPECT_GE(DefaultImportMemory(), uint64_t{1} << 26) << "no machine that builds this has less than 256 MiB";
  EXPECT_LT(DefaultImportMemory(), uint64_t{1} << 46) << "nor more than 256 TiB";
}

}  // namespace
}  // namespace permafrost::data
