// Checks that each refusal of a TUDataset is one line.
#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stop_token>
#include <string>
#include <utility>

#include "base/status.h"
#include "data/import/tu_sets.h"
#include "data/source/failing_disk.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TuImport, AMemberThatUnpacksTooFarIsRefused) {
  TempDir temp;
  // A line repeated many times compresses to a thousandth.
  std::string bomb;
  for (int i = 0; i < 5'000'000; ++i) bomb += "1\n";
  Files files = SmallTu();
  files["S_graph_indicator.txt"] = std::move(bomb);
  const std::string path = ZipOf(temp.path() / "bomb.zip", files);
  const auto summary = ImportTu(path, temp.path() / "store", {}, {.harmless_unpacked_bytes = uint64_t{5} << 20});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("S_graph_indicator.txt:"));
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("unpacks to more than 5242880 bytes, of "));
}

TEST(TuImport, IdsThatBeginAnewInEachGraphAreRefused) {
  TempDir temp;
  const fs::path trial = fs::path(PERMAFROST_SOURCE_DIR) / "tests" / "trials" / "tu-restarted" / "RST2";
  const auto restarted = ImportTu(trial, temp.path() / "store");
  EXPECT_EQ(restarted.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(restarted.status().message()),
            "RST2_A.txt: node ids: all edges are among the first 3 nodes of the set, and the largest of its 4 graphs "
            "has 3; 8 edges are repeated, and 3 graphs of two or more nodes would have none: ids seem to begin anew in "
            "each graph; accepted: ids that go on through all graphs, as the rows of RST2_graph_indicator.txt");
  const auto import = [&temp](const std::string& edges, const std::string& indicator) {
    fs::remove_all(temp.path() / "source");
    WriteFiles(temp.path() / "source", {{"S_A.txt", edges}, {"S_graph_indicator.txt", indicator}});
    return ImportTu(temp.path() / "source", temp.path() / "store").status();
  };
  constexpr char kAnew[] = "ids seem to begin anew in each graph";
  EXPECT_THAT(std::string(import("0,1\n1,0\n0,1\n1,0\n", "1\n1\n2\n2\n").message()), HasSubstr(kAnew)) << "from 0";
  EXPECT_THAT(std::string(import("2,3\n1,2\n", "1\n1\n1\n2\n2\n").message()), HasSubstr(kAnew)) << "no edge twice";
  // These files may well be meant as they are.
  EXPECT_TRUE(import("1,2\n2,1\n1,2\n4,5\n5,4\n", "1\n1\n1\n2\n2\n").ok()) << "ids go on";
  EXPECT_TRUE(import("1,2\n2,1\n2,3\n3,2\n", "1\n1\n1\n2\n2\n").ok()) << "a graph without edges, sorted";
  EXPECT_TRUE(import("2,1\n1,2\n1,2\n", "1\n1\n2\n").ok()) << "the other graph is one node";
  EXPECT_TRUE(import("2,1\n1,2\n1,2\n", "1\n1\n1\n").ok()) << "one graph";
}

TEST(TuImport, EveryBadInputIsOneLineThatNamesIt) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  const struct {
    const char* why;
    Files changes;  // "-" stands for a removed file
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
      {"an edge between graphs, after others out of their order",
       {{"S_A.txt", "5, 6\n1, 2\n2, 4\n"}},
       kInvalid,
       "S_A.txt:3: target: 4 is of another graph than source 2, of graph 1 with the nodes 1..3"},
      {"fewer edge labels than edges out of their order",
       {{"S_A.txt", "5, 6\n1, 2\n"}, {"S_edge_labels.txt", "1\n"}},
       kInvalid,
       "S_edge_labels.txt: rows: the file has 1, expected 2 (one an edge, as the rows of S_A.txt)"},
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
       "options.split: the format tu does not use it; accepted with ogb-graphs, ogb-nodes",
       {.source = {}, .split = "x"}},
      {"a layout of one large graph",
       {},
       kInvalid,
       "options.order: the format tu does not use it",
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

// The second reading finds as many edges of each graph as the first, but one node has more of them.
TEST(TuImport, DegreesThatChangeBetweenTheReadingsAreRefused) {
  for (const bool one_hot : {true, false}) {
    TempDir temp;
    const fs::path source = temp.path() / "source";
    WriteFiles(source, SmallTu());
    fs::create_directories(temp.path() / "store");
    bool changed = false;
    const ImportObserver observer = [&](const ImportProgress& progress) {
      if (progress.current_file != "S_A.txt" || std::exchange(changed, true)) return;
      WriteText(source / "S_A.txt", "1, 2\n1, 1\n1, 2\n1, 3\n1, 2\n5, 6\n6, 5\n6, 6\n");
    };
    const ImportOptions options{.source = source, .split = {}, .tu = {.one_hot = one_hot}};
    const absl::Status status = Import(options, temp.path() / "store", observer, std::stop_token()).status();
    EXPECT_TRUE(changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message(), "S_A.txt: changed while it was read") << (one_hot ? "one-hot" : "as integers");
  }
}

// The first rows could only be right if ids began at 0, which the rest of the file would show.
TEST(TuImport, ARestThatCannotBeReadIsNotTheFaultOfTheRowBeforeIt) {
  if (!fs::exists("/proc/self/fd")) GTEST_SKIP() << "this system does not tell which files are open";
  const struct {
    const char* why;
    std::string first_rows;
    int told;  // the progress report at which the disk fails; each read and each restart of the file reports
  } kCases[] = {
      {"in the file's order", "7, 1\n", 1},
      {"while edges out of their order are sorted", "5, 6\n1, 2\n7, 1\n", 3},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    const fs::path source = temp.path() / "source";
    Files files = SmallTu();
    // The file is larger than one read.
    files["S_A.txt"] = c.first_rows;
    for (int i = 0; i < 200'000; ++i) files["S_A.txt"] += "1, 2\n";
    WriteFiles(source, files);
    fs::create_directories(temp.path() / "store");
    int told = 0, failing = 0;
    const ImportObserver observer = [&](const ImportProgress& progress) {
      if (progress.current_file == "S_A.txt" && ++told == c.told) failing = FailReadsOf(source / "S_A.txt");
    };
    const ImportOptions options{.source = source, .split = {}};
    const absl::Status status = Import(options, temp.path() / "store", observer, std::stop_token()).status();
    EXPECT_EQ(failing, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("S_A.txt:"), HasSubstr(": cannot read: ")));
  }
}

// The import reports the first fault of a file.
TEST(TuImport, AFaultOfTheRestIsToldAfterTheRowBeforeIt) {
  TempDir temp;
  WriteFiles(temp.path() / "source", With(SmallTu(), {{"S_A.txt", "7, 1\n\n1, 2\n"}}));
  const absl::Status status = ImportTu(temp.path() / "source", temp.path() / "store").status();
  EXPECT_EQ(status, absl::InvalidArgumentError("S_A.txt:1: source: 7 is outside 1..6"));
}

TEST(TuImport, AStopInTheRestOfTheFileIsNoFaultOfIt) {
  TempDir temp;
  Files files = SmallTu();
  files["S_A.txt"] = "7, 1\n";
  for (int i = 0; i < 200'000; ++i) files["S_A.txt"] += "1, 2\n";
  WriteFiles(temp.path() / "source", files);
  fs::create_directories(temp.path() / "store");
  std::stop_source stop;
  int told = 0;
  const ImportObserver observer = [&](const ImportProgress& progress) {
    // The first reading must find the row, so the stop comes at the second.
    if (progress.current_file == "S_A.txt" && ++told == 2) stop.request_stop();
  };
  const ImportOptions options{.source = temp.path() / "source", .split = {}};
  const absl::Status status = Import(options, temp.path() / "store", observer, stop.get_token()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

// The refusal is the same whether the format is detected or given.
TEST(TuImport, AFolderThatCannotBeListedJustNowIsNotOneWithoutASet) {
  TempDir temp;
  WriteFiles(temp.path() / "source", SmallTu());
  fs::create_directories(temp.path() / "store");
  for (const ImportFormat format : {ImportFormat::kAuto, ImportFormat::kTu}) {
    const ImportOptions options{.source = temp.path() / "source", .format = format, .split = {}};
    absl::Status status;
    {
      const NoDescriptors none;
      status = Import(options, temp.path() / "store", /*observer=*/{}, std::stop_token()).status();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/source: cannot list: ")) << static_cast<int>(format);
  }
}

TEST(TuImport, MembersThatLeadElsewhere) {
  for (const std::string folder : {"../../", "/tmp/", "a/../", "..\\"}) {
    TempDir temp;
    Files files;
    for (const auto& [name, text] : SmallTu()) files[folder + name] = text;
    ZipOf(temp.path() / "evil.zip", files);
    const absl::Status status = ImportTu(temp.path() / "evil.zip", temp.path() / "store").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << folder;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("evil.zip: has a member "),
                                                     HasSubstr("whose path leads out of the archive; accepted: ")));
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
  std::string bytes = FileBytes(temp.path() / "good.zip");
  // Whichever byte is changed, the result is a whole store or an error of one line.
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
  // Files outside the import roots are not even listed.
  const ImportLimits closed{.may_read = [](const fs::path&) { return absl::PermissionDeniedError("closed"); }};
  summary = ImportTu(temp.path() / "good.zip", temp.path() / "store", {}, closed);
  EXPECT_EQ(summary.status(), absl::PermissionDeniedError("good.zip: closed"));
}

}  // namespace
}  // namespace permafrost::data
