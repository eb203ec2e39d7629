#include "data/catalog/imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/monotonic.h"
#include "base/status.h"
#include "data/catalog/catalog_fixture.h"
#include "data/source/failing_disk.h"
#include "data/store/types.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ImportRecord, ComesBackWhole) {
  ImportRecord record{
      .create_time = absl::FromUnixMicros(1'700'000'000'123'456), .uid = "0f", .error = "it \"failed\"", .starts = 2};
  ImportOptions& o = record.options;
  o.source = "/data/a file";
  o.format = ImportFormat::kEdgeList;
  o.inverse_edges = InverseEdges::kKeep;
  o.coalesce = true;
  o.keep_out_edges = false;
  o.split = "time";
  o.split_seed = UINT64_MAX;
  o.train_fraction = 0.1;
  o.valid_fraction = 1.0 / 3;
  o.edge_list = {.node_ids = NodeIds::kText,
                 .columns = {EdgeColumn::kTimestamp, EdgeColumn::kIgnore, EdgeColumn::kWeight},
                 .header = Header::kYes,
                 .delimiter = '\xa7',
                 .comment = '\0',
                 .quote = '\xa8',
                 .num_nodes = 4'294'967'295};
  o.tu = {.node_features = TuNodeFeatures::kAttributes, .one_hot = true, .max_degree = 12};
  o.node_features = NodeFeatureChoice::kDense;
  o.feature_type = FeatureType::kInt8;
  o.order = NodeOrder::kCommunity;
  o.memory_bytes = uint64_t{1} << 63;
  const auto read = RecordFromJson(RecordToJson(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->create_time, record.create_time);
  EXPECT_EQ(read->uid, "0f");
  EXPECT_EQ(read->error, record.error);
  EXPECT_EQ(read->starts, 2);
  EXPECT_EQ(read->options, o);
}

// Datasets of the first release have a record like this.
TEST(ImportRecord, AnOlderRecordTakesDefaults) {
  const auto read = RecordFromJson(R"({
  "add_inverse_edges": false, "create_time": "2026-01-02T03:04:05+00:00", "error": "", "source": "/data/zinc",
  "split": "plain", "split_seed": 7, "train_fraction": 0.5, "valid_fraction": 0.25
})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->uid, "1767323045000000") << "its time, in microseconds, as older versions told datasets apart";
  EXPECT_EQ(read->options.source, "/data/zinc");
  EXPECT_EQ(read->options.inverse_edges, InverseEdges::kKeep);
  EXPECT_EQ(read->options.split, "plain");
  EXPECT_EQ(read->options.split_seed, 7u);
  EXPECT_EQ(read->options.valid_fraction, 0.25);
  EXPECT_EQ(read->starts, 0);
  EXPECT_EQ(read->options.format, ImportFormat::kAuto);
  EXPECT_FALSE(read->options.coalesce);
  EXPECT_TRUE(read->options.keep_out_edges);
  EXPECT_EQ(read->options.edge_list, EdgeListOptions());
  EXPECT_EQ(read->options.feature_type, FeatureType::kAsIs);
  EXPECT_EQ(read->options.order, NodeOrder::kNone);
  EXPECT_EQ(read->options.memory_bytes, 0u);
}

TEST(ImportRecord, WhatDoesNotAddUpIsNamed) {
  const struct {
    const char* why;
    const char* text;
    const char* want;
  } kCases[] = {
      {"no JSON", "{]", "parse error"},
      {"no object", "[]", "an object was expected, not array"},
      {"no time", R"({"source": "/a"})", "create_time: is missing"},
      {"a time that is none", R"({"create_time": "soon", "source": "/a"})", "create_time: \"soon\" is not a time"},
      {"no source", R"({"create_time": "2026-01-02T03:04:05+00:00"})", "source: is missing"},
      {"an unknown format", R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "format": "parquet"})",
       "format: \"parquet\" is none of auto, ogb-graphs"},
      {"an unknown column",
       R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "edge_list": {"columns": ["weight", "colour"]}})",
       "columns: \"colour\" is none of source, target, weight, timestamp, ignore"},
      {"another type", R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "starts": "two"})",
       "must be number"},
  };
  for (const auto& c : kCases) {
    const auto read = RecordFromJson(c.text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << c.why << ": " << read.status();
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.want)) << c.why;
  }
}

constexpr absl::Duration kNow = absl::Hours(1);

TEST(ImportQueue, WhatWaitsLetsOthersGoBeforeIt) {
  ImportQueue queue;
  const DatasetId waits("waits"), first("first"), second("second");
  queue.Add(waits, kNow + absl::Seconds(3));
  queue.Add(first);
  queue.Add(second, kNow);
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), first);
  EXPECT_EQ(queue.Take(kNow, wait), second);
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
  EXPECT_EQ(wait, absl::Seconds(3));
  EXPECT_EQ(queue.Take(kNow + wait, wait), waits);
  EXPECT_EQ(queue.Take(kNow + absl::Hours(1), wait), std::nullopt);
  EXPECT_EQ(wait, absl::InfiniteDuration());
}

TEST(ImportQueue, TheShortestWaitCounts) {
  ImportQueue queue;
  queue.Add(DatasetId("long"), kNow + absl::Seconds(9));
  queue.Add(DatasetId("short"), kNow + absl::Seconds(2));
  queue.Add(DatasetId("middle"), kNow + absl::Seconds(5));
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
  EXPECT_EQ(wait, absl::Seconds(2));
}

TEST(ImportQueue, WhatWasRemovedDoesNotCome) {
  ImportQueue queue;
  queue.Add(DatasetId("gone"));
  EXPECT_TRUE(queue.Remove(DatasetId("gone")));
  EXPECT_FALSE(queue.Remove(DatasetId("gone")));
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
}

class ImportRootsTest : public ::testing::Test {
 protected:
  ImportRootsTest() { fs::create_directories(root_ / "set" / "raw"); }
  absl::Status Check(const fs::path& source) const {
    const auto resolved = ResolveSource(source, roots_);
    return resolved.ok() ? CheckEntriesInRoots(*resolved, roots_) : resolved.status();
  }

  TempDir temp_;
  const fs::path root_ = temp_.path() / "root";
  const std::vector<fs::path> roots_ = {root_};
};

TEST_F(ImportRootsTest, AFolderThatCannotBeListedJustNowIsNotForbidden) {
  EXPECT_TRUE(Check(root_ / "set").ok());
  const NoDescriptors none;
  const absl::Status status = Check(root_ / "set");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(IsTransient(status));
}

// If the roots cannot be resolved just now, an open file is refused only if no root can hold it.
TEST_F(ImportRootsTest, WhatLiesBelowNoRootThatCanBeResolvedIsNotRefusedYet) {
  EXPECT_TRUE(CheckInRoots(root_ / "set" / "raw" / "edge.csv", roots_).ok());
  const absl::Status refused = CheckInRoots(temp_.path() / "edge.csv", roots_);
  EXPECT_EQ(refused, absl::PermissionDeniedError("leads to outside the import roots"));
  for (const int error : {EIO, EMFILE, ENOMEM}) {
    absl::Status status;
    const bool failing = WithoutStat(error, [&] { status = CheckInRoots(root_ / "set" / "raw" / "edge.csv", roots_); });
    if (!failing) GTEST_SKIP() << "no call can be made to fail here";
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/root: cannot resolve: ")) << error;
  }
}

TEST_F(ImportRootsTest, APathThatCanNeverBeFollowedIsTheCallersError) {
  fs::create_symlink("circle", root_ / "circle");
  fs::create_directories(root_ / "linked" / "raw");
  fs::create_symlink("edge.csv", root_ / "linked" / "raw" / "edge.csv");
  const struct {
    const char* why;
    fs::path source;
    const char* want;
  } kCases[] = {
      {"a circle of links", root_ / "circle", "/circle: cannot resolve: Too many levels of symbolic links"},
      {"one in it", root_ / "linked", "/linked/raw/edge.csv: cannot look at: Too many levels of symbolic links"},
      {"a long name", root_ / std::string(300, 'a'), ": cannot resolve: File name too long"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Check(c.source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << status;
    EXPECT_FALSE(IsTransient(status)) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want)) << c.why;
  }
}

constexpr uint64_t kMoreThanThereIs = uint64_t{1} << 60;

TEST(RoomWatch, CountsWhatLiesInAndBelowAFolder) {
  const TempDir dir;
  fs::create_directory(dir.path() / "below");
  std::ofstream(dir.path() / "a") << "12345";
  std::ofstream(dir.path() / "below" / "b") << "678";
  EXPECT_EQ(BytesBelow(dir.path()), 8u);
  EXPECT_EQ(BytesBelow(dir.path() / "none"), 0u);
}

TEST(RoomWatch, TellsWhatIsTooMany) {
  const struct {
    const char* why;
    uint64_t most, taken, bytes;
    bool ok;
  } kCases[] = {
      {"any number", 0, 100, 100, true},
      {"all of it", 100, 0, 100, true},
      {"one more", 100, 0, 101, false},
      {"beside others", 100, 60, 40, true},
      {"too many beside others", 100, 60, 41, false},
      {"nothing is left", 100, 120, 1, false},
  };
  for (const auto& c : kCases) {
    const absl::Status status =
        CheckDatasetBytes({.reserve = {}, .max_bytes = c.most, .taken_bytes = c.taken}, c.bytes);
    EXPECT_EQ(status.ok(), c.ok) << c.why;
    if (c.ok) continue;
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << c.why;
    EXPECT_FALSE(IsTransient(status)) << c.why << ": it is for the owner to delete one";
    EXPECT_EQ(GetReason(status).reason, "DATASETS_TOO_LARGE") << c.why;
  }
}

TEST(RoomWatch, StopsWhatWritesMoreThanThereIsRoomFor) {
  const TempDir dir;
  std::ofstream(dir.path() / "store") << std::string(1000, 'x');
  std::stop_source stop;
  Event stopped;
  const std::stop_callback tell(stop.get_token(), [&stopped] { stopped.Set(); });
  const RoomWatch watch({.reserve = {}, .max_bytes = 999, .taken_bytes = 0}, dir.path(), stop);
  stopped.Wait();
  EXPECT_TRUE(absl::IsResourceExhausted(watch.status())) << watch.status();
}

class ImportRoomTest : public CatalogTest {
 protected:
  std::unique_ptr<Catalog> OpenWith(DiskReserve reserve, uint64_t max_bytes) {
    auto catalog = Catalog::Create({.directory = directory(),
                                    .import_roots = {root()},
                                    .threads = kThreads,
                                    .warn = [](std::string_view) {},
                                    .first_retry = absl::Milliseconds(1),
                                    .reserve = std::move(reserve),
                                    .max_bytes = max_bytes});
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return *std::move(catalog);
  }
};

TEST_F(ImportRoomTest, AnImportWaitsWhileTheDiskIsNearlyFull) {
  {
    const auto catalog = OpenWith(DiskReserve(temp_.path(), kMoreThanThereIs), 0);
    ASSERT_TRUE(catalog->Import(Id("large"), {.source = LargeSource()}).ok());
    const auto waits = Await(*catalog, Id("large"), [](const Dataset& d) { return !d.last_error.empty(); });
    EXPECT_EQ(waits->state, DatasetState::kImporting);
    EXPECT_THAT(waits->last_error, HasSubstr("the disk is nearly full"));
    ASSERT_TRUE(catalog->Delete(Id("large"), Unused).ok());
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_TRUE(Await(*catalog, Id("small"), [](const Dataset& d) { return !d.last_error.empty(); }).ok());
  }
  const auto catalog = OpenWith(DiskReserve(temp_.path(), 1), 0);
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady) << "there is room now";
}

TEST_F(ImportRoomTest, AnImportThatTakesMoreThanAllDatasetsMayFails) {
  const auto catalog = OpenWith({}, 100);
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const auto failed = AwaitEnd(*catalog, Id("small"));
  EXPECT_EQ(failed->state, DatasetState::kFailed);
  EXPECT_THAT(failed->error, HasSubstr("of 100 for all datasets (--max-dataset-bytes)"));
  EXPECT_THAT(OnDisk(), ElementsAre("small.json")) << "its record, and nothing half-imported";
}

TEST_F(ImportRoomTest, WhereNothingIsLeftAnImportIsRefused) {
  uint64_t bytes = 0;
  {
    const auto catalog = OpenWith({}, 0);
    ASSERT_TRUE(catalog->Import(Id("first"), Options()).ok());
    ASSERT_EQ(AwaitEnd(*catalog, Id("first"))->state, DatasetState::kReady);
    bytes = StoreBytes(*catalog->Get(Id("first"))->summary);
  }
  const auto catalog = OpenWith({}, bytes);
  EXPECT_TRUE(absl::IsResourceExhausted(catalog->Import(Id("second"), Options()).status()));
  ASSERT_TRUE(catalog->Delete(Id("first"), Unused).ok());
  EXPECT_TRUE(catalog->Import(Id("second"), Options()).ok());
}

}  // namespace
}  // namespace permafrost::data
