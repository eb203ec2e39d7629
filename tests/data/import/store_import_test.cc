// Imports of stores that a server wrote. They are taken over unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <stop_token>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "data/graph_fixture.h"
#include "data/import/import.h"
#include "data/ogb_folder.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The parameter is true for one large graph, and false for a set of small graphs.
class StoreImportTest : public ::testing::TestWithParam<bool> {
 protected:
  StoreImportTest() {
    fs::create_directories(source());
    if (GetParam()) {
      TestGraph graph = MakeTestGraph({});
      EXPECT_TRUE(graph.Write(source()).ok());
    } else {
      EXPECT_NE(MakeStore(temp_.path() / "made", PlacedSet()), nullptr);
      fs::rename(temp_.path() / "made" / "store" / name(), file());
    }
    bytes_ = *ReadFile(file());
  }
  static std::string name() { return std::string(GetParam() ? Graph::kFileName : GraphSet::kFileName); }
  fs::path source() const { return temp_.path() / "source"; }
  fs::path file() const { return source() / name(); }
  fs::path store() const { return temp_.path() / "store"; }
  absl::StatusOr<ImportedSummary> Take(const ImportLimits& limits = {}, ImportFormat format = ImportFormat::kStore,
                                       const ImportObserver& observer = {}, const std::stop_token& stop = {}) const {
    fs::remove_all(store());
    fs::create_directories(store());
    return Import({.source = source(), .format = format}, store(), observer, stop, limits);
  }

  const TempDir temp_;
  std::string bytes_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, StoreImportTest, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Graph" : "GraphSet"; });

TEST_P(StoreImportTest, AStoreStaysAsItIs) {
  WriteText(source() / "dataset.json", "{}");
  WriteText(source() / ".hidden", "");
  for (const ImportFormat format : {ImportFormat::kStore, ImportFormat::kAuto}) {
    ImportProgress last;
    const auto summary = Take({}, format, [&](const ImportProgress& progress) {
      EXPECT_GE(progress.bytes_read, last.bytes_read);
      last = progress;
    });
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(StoreBytes(*summary), bytes_.size());
    EXPECT_EQ(last.bytes_read, last.bytes_total);
    EXPECT_EQ(last.bytes_total, 2 * static_cast<int64_t>(bytes_.size()));
    EXPECT_EQ(*ReadFile(store() / name()), bytes_);
    EXPECT_EQ(*ListDirectory(store()), std::vector<std::string>{name()});
    EXPECT_EQ(ContentChecksumOf(*OpenDataset(store())), ContentChecksumOf(*OpenDataset(source())));
  }
}

TEST_P(StoreImportTest, AFileOfTheServersOwnIsLinked) {
  const struct {
    fs::path own_files;
    uintmax_t links;
  } kCases[] = {{temp_.path(), 2}, {source(), 2}, {temp_.path() / "sour", 1}, {"", 1}};
  for (const auto& c : kCases) {
    ASSERT_TRUE(Take({.own_files = c.own_files}).ok());
    EXPECT_EQ(fs::hard_link_count(store() / name()), c.links) << c.own_files;
    EXPECT_EQ(*ReadFile(store() / name()), bytes_);
  }
}

TEST_P(StoreImportTest, WhatIsNoWholeStoreIsRefused) {
  StoreImage damaged(bytes_), newer(bytes_);
  const SectionEntry labels = damaged.entry(SectionKind::kLabels);
  damaged.bytes()[labels.offset] ^= 1;
  FileHeader header = newer.header();
  header.version = kStoreVersion + 1;
  newer.set_header(header);
  newer.Seal();
  const auto put = [this](const std::string& bytes) { return [this, bytes] { WriteText(file(), bytes); }; };
  const struct {
    const char* why;
    std::function<void()> change;
    absl::StatusCode code;
    const char* told;
  } kCases[] = {
      {"one byte of a section", put(damaged.bytes()), absl::StatusCode::kDataLoss, "NAME: section labels: bytes 0.."},
      {"the end is missing", put(bytes_.substr(0, bytes_.size() - 1)), absl::StatusCode::kDataLoss,
       "NAME: file length: is "},
      {"a newer version", put(newer.bytes()), absl::StatusCode::kFailedPrecondition,
       "NAME: version: is 4, expected 1..3"},
      {"a text", put(std::string(5000, 'a')), absl::StatusCode::kDataLoss, "NAME: magic: not a Permafrost graph store"},
      {"nothing", [this] { fs::remove(file()); }, absl::StatusCode::kNotFound,
       "SOURCE: holds neither graphs.pfg nor graph.pfg, so it is no dataset of a server"},
      {"the other kind's name",
       [this] { fs::rename(file(), source() / (GetParam() ? GraphSet::kFileName : Graph::kFileName)); },
       absl::StatusCode::kDataLoss, ".pfg: layout: is "},
      {"both", [this] { fs::copy_file(file(), source() / (GetParam() ? GraphSet::kFileName : Graph::kFileName)); },
       absl::StatusCode::kInvalidArgument, "SOURCE: holds graphs.pfg and graph.pfg; one of them is accepted"},
      {"another file", [this] { WriteText(source() / "raw" / "edge.csv", "0,1\n"); },
       absl::StatusCode::kInvalidArgument,
       "SOURCE: holds \"raw\", which is no part of a dataset; accepted beside NAME: dataset.json"},
      {"a folder",
       [this] {
         fs::remove(file());
         fs::create_directories(file());
       },
       absl::StatusCode::kInvalidArgument, "NAME: is no regular file"},
  };
  for (const auto& c : kCases) {
    fs::remove_all(source());
    WriteText(file(), bytes_);
    c.change();
    const absl::Status refused = Take().status();
    EXPECT_EQ(refused.code(), c.code) << c.why << ": " << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrReplaceAll(c.told, {{"NAME", name()}, {"SOURCE", source().string()}})))
        << c.why;
  }
}

// Anyone can recompute the checksums, so values outside the summary's range must be refused.
TEST_P(StoreImportTest, CategoriesOutsideTheirRangeAreRefused) {
  std::string table = "node features: row 0: column 0: is -5";
  if (GetParam()) {
    // The summary gives the range 0 to 3 for edge features. It gives no range for node features, which are plain
    // numbers.
    table = "edge features: row 0: column 0: is ";
    for (const bool all : {true, false}) {
      TestGraph graph = MakeTestGraph({.features = DataType::kInt32});
      FeatureSummary& edges = graph.summary.edge_features;
      edges.min.assign(static_cast<size_t>(edges.width), all ? std::numeric_limits<int32_t>::min() : 0);
      edges.max.assign(static_cast<size_t>(edges.width), all ? std::numeric_limits<int32_t>::max() : 3);
      ASSERT_TRUE(graph.Write(source()).ok());
      if (all) {
        EXPECT_EQ(Take().status(), absl::OkStatus());
      }
    }
  } else {
    StoreImage image(bytes_);
    image.SetElement<int32_t>(SectionKind::kNodeFeatures, 0, -5);
    image.Seal();
    WriteText(file(), image.bytes());
  }
  const absl::Status refused = Take().status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(name() + ": " + table));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(", and its summary tells "));
}

TEST(StoreImport, ClassesOutsideTheirRangeAreRefused) {
  const TempDir temp;
  for (const char* folder : {"source", "store"}) fs::create_directories(temp.path() / folder);
  TestGraph graph = MakeTestGraph({});
  graph.summary.integer_labels = true;
  ASSERT_TRUE(graph.Write(temp.path() / "source").ok());
  const absl::Status refused =
      Import({.source = temp.path() / "source", .format = ImportFormat::kStore}, temp.path() / "store", {}, {}, {})
          .status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("graph.pfg: labels: value "));
}

TEST_P(StoreImportTest, ItsFileIsNoSource) {
  for (const ImportFormat format : {ImportFormat::kStore, ImportFormat::kAuto}) {
    const ImportOptions options{.source = file(), .format = format};
    EXPECT_THAT(std::string(CheckSource(options, {}).message()),
                HasSubstr(": is a file; the format store takes the directory that holds it"));
  }
}

TEST_P(StoreImportTest, TheLimitsHold) {
  const absl::Status outside =
      Take({.may_read = [](const fs::path&) { return absl::PermissionDeniedError("leads outside"); }}).status();
  EXPECT_EQ(outside, absl::PermissionDeniedError(name() + ": leads outside"));
  std::stop_source stop;
  const auto when_verifying = [&stop](const ImportProgress& progress) {
    if (progress.bytes_read > progress.bytes_total / 2) stop.request_stop();
  };
  EXPECT_TRUE(absl::IsCancelled(Take({}, ImportFormat::kStore, when_verifying, stop.get_token()).status()));
}

}  // namespace
}  // namespace permafrost::data
