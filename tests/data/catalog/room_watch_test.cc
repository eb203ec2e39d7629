#include "data/catalog/imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "base/monotonic.h"
#include "base/status.h"
#include "data/catalog/catalog_fixture.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
