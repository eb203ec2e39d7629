// Imports that fail for a passing reason of the machine are tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "data/catalog/catalog.h"
#include "data/catalog/catalog_fixture.h"
#include "data/catalog/imports.h"
#include "data/ogb_folder.h"
#include "data/source/failing_disk.h"
#include "file_size_limit.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CatalogRetryTest : public CatalogTest {
 protected:
  // Returns an importer that finds the disk full for source() as long as `full` is true.
  ImportFunction WhileFull(std::atomic<bool>& full) {
    return [this, &full](const ImportOptions& options, const fs::path& directory, const ImportObserver& observer,
                         std::stop_token stop, const ImportLimits& limits) -> absl::StatusOr<ImportedSummary> {
      ++tries_;
      if (full && options.source == source()) return SystemError(ENOSPC, directory, "write");
      return data::Import(options, directory, observer, std::move(stop), limits);
    };
  }
  static absl::StatusOr<Dataset> AwaitTrouble(Catalog& catalog, const DatasetId& id) {
    return Await(catalog, id, [](const Dataset& dataset) { return !dataset.last_error.empty(); });
  }
  ImportRecord Record(const char* name) const {
    const auto text = ReadFile(directory() / ".imports" / name);
    EXPECT_TRUE(text.ok()) << text.status();
    const auto record = RecordFromJson(text.ok() ? *text : "");
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *record : ImportRecord();
  }
  ImportOptions Other() {
    WriteFiles(root() / "other", SmallSet());
    ImportOptions options;
    options.source = root() / "other";
    return options;
  }

  std::atomic<int> tries_ = 0;
};

TEST_F(CatalogRetryTest, ADiskThatIsFullForAWhileFailsNoImport) {
  first_retry_ = absl::Milliseconds(1);
  // The first three tries run out of space while the importer writes a file.
  const auto catalog = Open([this](const ImportOptions& options, const fs::path& directory,
                                   const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits) {
    std::optional<FileSizeLimit> limit;
    if (++tries_ <= 3) limit.emplace(64);
    return data::Import(options, directory, observer, std::move(stop), limits);
  });
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const auto ready = AwaitEnd(*catalog, Id("small"));
  ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
  EXPECT_EQ(ready->last_error, "") << "it has got over it";
  EXPECT_EQ(ready->retry_time, absl::InfinitePast());
  EXPECT_EQ(tries_, 4);
  EXPECT_EQ(catalog->usage().imports.retried, 3);
  EXPECT_EQ(catalog->usage().imports.failed, 0);
  EXPECT_EQ(catalog->usage().imports.succeeded, 1);
  EXPECT_THAT(OnDisk(), ElementsAre("small"));
}

// The importer has opened a file and asks whether it lies in a root.
TEST_F(CatalogRetryTest, ARootThatCannotBeResolvedJustNowFailsNoImport) {
  first_retry_ = absl::Milliseconds(1);
  std::atomic<bool> can_fail = true;
  const auto catalog = Open([&](const ImportOptions& options, const fs::path& directory, const ImportObserver& observer,
                                std::stop_token stop, const ImportLimits& limits) -> absl::StatusOr<ImportedSummary> {
    if (++tries_ > 1) return data::Import(options, directory, observer, std::move(stop), limits);
    absl::Status said;
    can_fail = WithoutStat(EIO, [&] { said = limits.may_read(options.source / "raw" / "edge.csv"); });
    if (!said.ok()) return said;
    return data::Import(options, directory, observer, std::move(stop), limits);
  });
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const auto ready = AwaitEnd(*catalog, Id("small"));
  if (!can_fail) GTEST_SKIP() << "no call can be made to fail here";
  ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
  EXPECT_EQ(tries_, 2);
  EXPECT_THAT(Warnings(), ElementsAre(EndsWith("/root: cannot resolve: Input/output error")));
}

TEST_F(CatalogRetryTest, WhatWaitsIsShownAndHoldsNoOtherUp) {
  first_retry_ = absl::Minutes(4);
  std::atomic<bool> full = true;
  const auto catalog = Open(WhileFull(full));
  const absl::Time before = absl::Now();
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const auto waits = AwaitTrouble(*catalog, Id("small"));
  EXPECT_EQ(waits->state, DatasetState::kImporting);
  EXPECT_EQ(waits->error, "");
  EXPECT_THAT(waits->last_error, EndsWith("/.tmp-small: cannot write: No space left on device"));
  EXPECT_GE(waits->retry_time, before + first_retry_);
  EXPECT_THAT(Warnings(), ElementsAre("the import of small waits and is tried again: " + waits->last_error));
  ASSERT_TRUE(catalog->Import(Id("other"), Other()).ok());
  EXPECT_EQ(AwaitEnd(*catalog, Id("other"))->state, DatasetState::kReady);
  EXPECT_EQ(catalog->Get(Id("small"))->state, DatasetState::kImporting);
  EXPECT_THAT(OnDisk(), ElementsAre("other", "small.json")) << "nothing half-imported remains";
  EXPECT_EQ(Record("small.json").starts, 0) << "the process did not die";
  EXPECT_EQ(Record("small.json").error, "") << "it is wanted";
}

TEST_F(CatalogRetryTest, WhatWaitsMayBeReplacedAndThenBeginsAtOnce) {
  first_retry_ = absl::Minutes(4);
  std::atomic<bool> full = true;
  const auto catalog = Open(WhileFull(full));
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_TRUE(AwaitTrouble(*catalog, Id("small")).ok());
  full = false;
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(tries_, 2);
}

TEST_F(CatalogRetryTest, WhatWaitsMayBeDeleted) {
  first_retry_ = absl::Minutes(4);
  std::atomic<bool> full = true;
  auto catalog = Open(WhileFull(full));
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_TRUE(AwaitTrouble(*catalog, Id("small")).ok());
  ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
  EXPECT_EQ(catalog->usage().imports.cancelled, 1);
  EXPECT_THAT(OnDisk(), IsEmpty());
}

TEST_F(CatalogRetryTest, TheWaitSurvivesTheServer) {
  first_retry_ = absl::Minutes(4);
  std::atomic<bool> full = true;
  absl::StatusOr<Dataset> waits;
  {
    const auto catalog = Open(WhileFull(full));
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    waits = AwaitTrouble(*catalog, Id("small"));
    ASSERT_TRUE(waits.ok()) << waits.status();
  }
  full = false;
  const auto catalog = Open(WhileFull(full));
  ASSERT_TRUE(catalog->Import(Id("other"), Other()).ok());
  EXPECT_EQ(AwaitEnd(*catalog, Id("other"))->state, DatasetState::kReady) << "it holds no other up";
  const auto small = catalog->Get(Id("small"));
  EXPECT_EQ(small->state, DatasetState::kImporting);
  EXPECT_EQ(small->last_error, waits->last_error);
  EXPECT_EQ(small->retry_time, waits->retry_time);
  EXPECT_EQ(tries_, 2) << "one of each";
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok()) << "importing again begins at once";
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
}

TEST_F(CatalogRetryTest, AWaitWhoseTimeHasPassedIsOver) {
  first_retry_ = absl::Milliseconds(1);
  {
    std::atomic<bool> full = true;
    const auto catalog = Open(WhileFull(full));
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_TRUE(AwaitTrouble(*catalog, Id("small")).ok());
  }
  const auto catalog = Open();
  const auto ready = AwaitEnd(*catalog, Id("small"));
  EXPECT_EQ(ready->state, DatasetState::kReady) << ready->error;
  EXPECT_EQ(ready->last_error, "");
}

TEST_F(CatalogRetryTest, WhatIsWrongWithTheSourceAfterAllStillFails) {
  first_retry_ = absl::Milliseconds(1);
  const auto catalog = Open([this](const ImportOptions&, const fs::path& directory, const ImportObserver&,
                                   const std::stop_token&, const ImportLimits&) -> absl::StatusOr<ImportedSummary> {
    if (++tries_ == 1) return SystemError(ENOSPC, directory, "write");
    return absl::InvalidArgumentError("raw/edge.csv:2: ragged");
  });
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const auto failed = AwaitEnd(*catalog, Id("small"));
  EXPECT_EQ(failed->state, DatasetState::kFailed);
  EXPECT_EQ(failed->error, "raw/edge.csv:2: ragged");
  EXPECT_EQ(failed->last_error, "");
  EXPECT_EQ(tries_, 2);
}

// A link to itself gives an error of the system, and not one that says that the store is damaged.
TEST_F(CatalogRetryTest, ADatasetThatCannotBeOpenedJustNowIsOpenedLater) {
  first_retry_ = absl::Milliseconds(1);
  {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  }
  const fs::path store = directory() / "small" / "graphs.pfg", aside = temp_.path() / "aside";
  fs::rename(store, aside);
  fs::create_symlink("graphs.pfg", store);
  const auto catalog = Open();
  const auto failed = catalog->Get(Id("small"));
  ASSERT_EQ(failed->state, DatasetState::kFailed);
  EXPECT_THAT(failed->error, HasSubstr("graphs.pfg: cannot open"));
  const absl::Status status = catalog->Open(Id("small")).status();
  EXPECT_EQ(GetReason(status).reason, "DATASET_NOT_READY");
  EXPECT_TRUE(IsTransient(status)) << "a job that needs it waits";
  EXPECT_THAT(std::string(status.message()), HasSubstr("graphs.pfg: cannot open"));
  fs::rename(aside, store);
  const auto ready = Await(*catalog, Id("small"), [](const Dataset& d) { return d.state == DatasetState::kReady; });
  EXPECT_EQ(ready->error, "");
  EXPECT_TRUE(ready->summary.has_value());
  EXPECT_TRUE(catalog->Open(Id("small")).ok());
}

// This happens if the fsync of datasets/ fails after the dataset was renamed to its name.
TEST_F(CatalogRetryTest, WhatHasItsNameIsNotImportedAgain) {
  first_retry_ = absl::Milliseconds(1);
  const auto catalog = Open([this](const ImportOptions& options, const fs::path& making, const ImportObserver& observer,
                                   std::stop_token stop, const ImportLimits& limits) {
    ++tries_;
    auto summary = data::Import(options, making, observer, std::move(stop), limits);
    EXPECT_TRUE(summary.ok()) << summary.status();
    fs::copy_file(directory() / ".imports" / "small.json", making / "dataset.json");
    fs::rename(making, directory() / "small");
    summary = SystemError(EIO, directory(), "fsync");
    return summary;
  });
  const auto accepted = catalog->Import(Id("small"), Options());
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  const auto ready = AwaitEnd(*catalog, Id("small"));
  ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
  EXPECT_EQ(ready->uid, accepted->uid);
  EXPECT_EQ(std::get<GraphSetSummary>(*ready->summary).all.nodes, 5);
  EXPECT_EQ(tries_, 1);
  EXPECT_EQ(catalog->usage().imports.retried, 1);
  EXPECT_THAT(OnDisk(), ElementsAre("small"));
}

// The test stands for an error of the disk: a read of the mapping fails while the file remains unchanged.
TEST_F(CatalogRetryTest, AMappingThatTheDiskFailedIsNotGoneOnWith) {
  const auto catalog = Open();
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  const auto held = catalog->Open(Id("small"));
  ASSERT_TRUE(held.ok()) << held.status();
  const fs::path store = directory() / "small" / "graphs.pfg";
  const std::string bytes = *ReadFile(store);
  const auto time = fs::last_write_time(store);
  fs::resize_file(store, 0);
  EXPECT_FALSE(std::get<0>(*held)->edge_target().ok());
  WriteText(store, bytes);
  fs::last_write_time(store, time);
  ASSERT_TRUE(IsTransient(std::get<0>(*held)->CheckIntact())) << "a job that has it waits";
  const auto anew = catalog->Open(Id("small"));
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_NE(*anew, *held);
  EXPECT_TRUE(std::get<0>(*anew)->edge_target().ok());
}

TEST_F(CatalogRetryTest, WhatAnImportWaitsToReadIsKnown) {
  first_retry_ = absl::Minutes(4);
  std::atomic<bool> full = true;
  fs::create_directory_symlink(root(), temp_.path() / "link");
  {
    const auto catalog = Open(WhileFull(full));
    EXPECT_FALSE(catalog->ImportsFrom(source()));
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_TRUE(AwaitTrouble(*catalog, Id("small")).ok());
  }
  const auto catalog = Open(WhileFull(full));
  for (const fs::path& folder : {source(), root(), temp_.path() / "link" / "small"}) {
    EXPECT_TRUE(catalog->ImportsFrom(folder)) << folder;
  }
  for (const fs::path& folder : {root() / "smal", root() / "other"}) {
    EXPECT_FALSE(catalog->ImportsFrom(folder)) << folder;
  }
  ASSERT_TRUE(AwaitTrouble(*catalog, Id("small")).ok());
  full = false;
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_FALSE(catalog->ImportsFrom(source()));
}

TEST_F(CatalogRetryTest, ADamagedDatasetIsNotOpenedAgain) {
  first_retry_ = absl::Milliseconds(1);
  {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  }
  WriteText(directory() / "small" / "graphs.pfg", "short");
  const auto catalog = Open();
  ASSERT_EQ(catalog->Get(Id("small"))->state, DatasetState::kFailed);
  EXPECT_FALSE(IsTransient(catalog->Open(Id("small")).status()));
}

}  // namespace
}  // namespace permafrost::data
