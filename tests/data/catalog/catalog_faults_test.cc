// Faults while an import runs: exceptions, death of the process, and links that are moved meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include "absl/synchronization/notification.h"
#include "base/file.h"
#include "base/status.h"
#include "data/catalog/catalog.h"
#include "data/catalog/catalog_files.h"
#include "data/catalog/catalog_fixture.h"
#include "data/catalog/imports.h"
#include "data/ogb_folder.h"
#include "no_descriptors.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CatalogFaultsTest : public CatalogTest {
 protected:
  fs::path RecordPath() const { return directory() / ".imports" / "small.json"; }
  ImportRecord Record() const {
    const auto text = ReadFile(RecordPath());
    EXPECT_TRUE(text.ok()) << text.status();
    const auto record = RecordFromJson(text.ok() ? *text : "");
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *record : ImportRecord();
  }
  // Writes the record of an accepted import that has not begun in this process.
  void WriteRecord(int starts) const {
    WriteText(RecordPath(),
              RecordToJson({.create_time = absl::FromUnixSeconds(1), .options = Options(), .starts = starts}));
  }
  // Returns an importer that calls first(options) and then imports.
  template <class F>
  static ImportFunction After(F first) {
    return [first](const ImportOptions& options, const fs::path& directory, const ImportObserver& observer,
                   std::stop_token stop, const ImportLimits& limits) {
      first(options);
      return data::Import(options, directory, observer, std::move(stop), limits);
    };
  }
};

TEST_F(CatalogFaultsTest, AnImporterIsToldItsThreads) {
  std::atomic<int> threads = 0;
  const auto catalog = Open([&](const ImportOptions& options, const fs::path& directory, const ImportObserver& observer,
                                std::stop_token stop, const ImportLimits& limits) {
    threads = limits.threads;
    return data::Import(options, directory, observer, std::move(stop), limits);
  });
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(threads, kThreads);
}

TEST_F(CatalogFaultsTest, AnExceptionFailsTheImportAndNothingElse) {
  const struct {
    const char* why;
    void (*fault)();
    const char* want;
  } kCases[] = {
      {"no memory", [] { throw std::bad_alloc(); }, "the import: out of memory"},
      {"anything else", [] { throw std::length_error("vector::reserve"); }, "the import: vector::reserve"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    std::atomic<bool> faulty = true;
    {
      const auto catalog = Open(After([&](const ImportOptions&) {
        if (faulty.exchange(false)) c.fault();
      }));
      ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
      ASSERT_TRUE(catalog->Import(Id("next"), Options()).ok());
      const auto failed = AwaitEnd(*catalog, Id("small"));
      EXPECT_EQ(failed->state, DatasetState::kFailed);
      EXPECT_EQ(failed->error, c.want);
      EXPECT_EQ(AwaitEnd(*catalog, Id("next"))->state, DatasetState::kReady) << "imports go on";
      EXPECT_THAT(OnDisk(), ElementsAre("next", "small.json")) << "nothing half-imported remains";
      EXPECT_EQ(Record().error, c.want);
      ASSERT_TRUE(catalog->Delete(Id("next"), Unused).ok());
      ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
    }
  }
}

TEST_F(CatalogFaultsTest, ADeletionWhoseBytesStayIsDone) {
  {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
    fs::create_directories(directory() / "small" / "of" / "mine");
    {
      // One descriptor is enough for everything except removing nested folders.
      const NoDescriptors none(/*left=*/1);
      const absl::Status deleted = catalog->Delete(Id("small"), Unused);
      EXPECT_TRUE(deleted.ok()) << deleted;
    }
    EXPECT_FALSE(catalog->Get(Id("small")).ok());
    EXPECT_THAT(Warnings(), ElementsAre(AllOf(HasSubstr("what dataset small left in "),
                                              HasSubstr(" is looked at again at the next start: "))));
    EXPECT_THAT(OnDisk(), ElementsAre(".deleted-1-small"));
  }
  // At the next start, a folder that holds more than a dataset is moved to quarantine, where it is kept.
  Open();
  EXPECT_THAT(OnDisk(), ElementsAre(".quarantine"));
}

TEST_F(CatalogFaultsTest, WhatTheMachineRefusesIsTransient) {
  const CatalogFiles files(directory(), nullptr);
  ASSERT_TRUE(files.Prepare().ok());
  {
    const NoDescriptors none;
    const absl::Status listed = files.ReadDatasets().status();
    EXPECT_TRUE(IsTransient(listed)) << listed;
  }
  WriteRecord(/*starts=*/1);
  fs::create_directories(directory() / ".imports" / "small.deleted" / "in the way");
  const absl::Status marked = files.MarkImportDeleted(Id("small"));
  EXPECT_TRUE(IsTransient(marked)) << marked;
  const absl::Status moved = files.Quarantine(directory(), "cannot be moved into itself");
  EXPECT_TRUE(IsTransient(moved)) << moved;
}

TEST_F(CatalogFaultsTest, AnImportThatKillsTheServerIsGivenUp) {
  const auto die = [this](bool accept) {
    const auto catalog = Open(After([](const ImportOptions&) { _exit(7); }));
    if (accept) catalog->Import(Id("small"), Options()).status().IgnoreError();
    AwaitEnd(*catalog, Id("small")).status().IgnoreError();
  };
  EXPECT_EXIT(die(true), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(die(false), ::testing::ExitedWithCode(7), "");
  EXPECT_EQ(Record().starts, 2);
  EXPECT_EXIT(die(false), ::testing::ExitedWithCode(7), "");
  for (int start = 0; start < 2; ++start) {
    std::atomic<bool> begun = false;
    const auto catalog = Open(After([&](const ImportOptions&) { begun = true; }));
    const auto dataset = AwaitEnd(*catalog, Id("small"));
    ASSERT_EQ(dataset->state, DatasetState::kFailed);
    EXPECT_EQ(dataset->error, "the server died 3 times while importing it; delete it and import again to retry");
    EXPECT_FALSE(begun);
  }
  const auto catalog = Open();
  ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
}

TEST_F(CatalogFaultsTest, TheThirdStartIsStillTried) {
  WriteRecord(/*starts=*/2);
  std::atomic<int> starts = 0;
  const auto catalog = Open(After([&](const ImportOptions&) { starts = Record().starts; }));
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(starts, 3) << "counted on disk before the import began";
}

TEST_F(CatalogFaultsTest, ADrainCountsAsNoStart) {
  WriteRecord(/*starts=*/1);
  absl::Notification begun;
  {
    const auto catalog = Open([&](const ImportOptions&, const fs::path&, const ImportObserver&,
                                  const std::stop_token& stop, const ImportLimits&) -> absl::StatusOr<ImportedSummary> {
      EXPECT_EQ(Record().starts, 2);
      absl::Notification stopped;
      const std::stop_callback on_stop(stop, [&stopped] { stopped.Notify(); });
      begun.Notify();
      stopped.WaitForNotification();
      return absl::CancelledError("the import was cancelled");
    });
    begun.WaitForNotification();
    catalog->StopImports();
    EXPECT_EQ(Record().starts, 1) << "written down by the time the drain ends";
  }
  EXPECT_EQ(AwaitEnd(*Open(), Id("small"))->state, DatasetState::kReady);
}

TEST_F(CatalogFaultsTest, ALinkMovedAfterTheCheckCannotLeaveTheRoots) {
  const fs::path outside = temp_.path() / "outside";
  WriteFiles(outside, SmallSet());
  WriteFiles(root() / "inside", SmallSet());
  const struct {
    const char* why;
    fs::path file;  // path relative to the source
    fs::path target;
    DatasetState want;
    const char* error;
  } kCases[] = {
      {"a file", "raw/edge.csv", outside / "raw" / "edge.csv", DatasetState::kFailed,
       "raw/edge.csv: leads to outside the import roots"},
      {"a folder", "split", outside / "split", DatasetState::kFailed,
       "split/plain/train.csv: leads to outside the import roots"},
      {"a link that stays inside", "raw/edge.csv", root() / "inside" / "raw" / "edge.csv", DatasetState::kReady, ""},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    fs::remove_all(source());
    WriteFiles(source(), SmallSet());
    const auto catalog = Open(After([&](const ImportOptions& options) {
      fs::remove_all(options.source / c.file);
      fs::create_symlink(c.target, options.source / c.file);
    }));
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    const auto dataset = AwaitEnd(*catalog, Id("small"));
    EXPECT_EQ(dataset->state, c.want);
    EXPECT_EQ(dataset->error, c.error);
    ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
  }
}

TEST_F(CatalogFaultsTest, TheSourceReadIsTheOneThatWasChecked) {
  fs::create_directory_symlink(source(), root() / "alias");
  ImportRecord record{.create_time = absl::FromUnixSeconds(1), .options = Options()};
  record.options.source = root() / "alias";
  WriteText(RecordPath(), RecordToJson(record));
  const auto catalog = Open(After([this](const ImportOptions& options) {
    EXPECT_EQ(options.source, source());
    fs::remove(root() / "alias");
  }));
  const auto dataset = AwaitEnd(*catalog, Id("small"));
  EXPECT_EQ(dataset->state, DatasetState::kReady) << dataset->error;
  EXPECT_EQ(dataset->options.source, root() / "alias") << "as it was asked";
}

}  // namespace
}  // namespace permafrost::data
