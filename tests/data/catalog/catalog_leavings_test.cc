// Leftovers in the catalog's directories that belong to no whole dataset. The catalog removes its own leftovers and
// keeps everything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "base/file.h"
#include "data/catalog/catalog.h"
#include "data/catalog/catalog_fixture.h"
#include "data/catalog/imports.h"
#include "data/ogb_folder.h"
#include "data/store/format.h"
#include "data/store_image.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CatalogLeavingsTest : public CatalogTest {
 protected:
  // Returns the contents of the file `name` in the directory of .quarantine/ that was moved there from `from`.
  std::string Quarantined(const std::string& from, const std::string& name) const {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory() / ".quarantine", none)) {
      if (!absl::EndsWith(entry.path().filename().string(), "Z-" + from)) continue;
      const auto content = ReadFile(name.empty() ? entry.path() : entry.path() / name);
      return content.ok() ? *content : content.status().ToString();
    }
    return "not there";
  }
  // Imports a whole dataset.
  void ImportNow(const char* name) {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id(name), Options()).ok());
    ASSERT_EQ(AwaitEnd(*catalog, Id(name))->state, DatasetState::kReady);
  }
  std::string ReadOrError(const fs::path& path) const {
    const auto text = ReadFile(path);
    return text.ok() ? *text : text.status().ToString();
  }
  // An import that ignores requests to stop.
  struct StuckImport {
    absl::Notification begun, let_go;
    ImportFunction importer() {
      return [this](const ImportOptions& options, const fs::path& directory, const ImportObserver& observer,
                    const std::stop_token&, const ImportLimits& limits) {
        if (!begun.HasBeenNotified()) {
          begun.Notify();
          let_go.WaitForNotification();
        }
        return data::Import(options, directory, observer, std::stop_token(), limits);
      };
    }
  };
};

// The test makes each leftover of a killed process by hand.
TEST_F(CatalogLeavingsTest, StartsFromWhateverAKillLeft) {
  const ImportRecord record{.create_time = absl::FromUnixSeconds(1), .options = Options()};
  ImportNow("published");
  ImportNow("taken-back");
  // Killed after publishing, and before the removal of the record.
  fs::copy_file(directory() / "published" / "dataset.json", directory() / ".imports" / "published.json");
  // Killed in the middle of an import.
  WriteText(directory() / ".imports" / "begun.json", RecordToJson(record));
  WriteText(directory() / ".tmp-begun" / "labels.part", "half");
  WriteText(directory() / ".tmp-begun" / "sort" / "run-0", "half");
  // Killed after the deletion of a running import, once before it had published and once after.
  WriteText(directory() / ".imports" / "stopped.deleted", RecordToJson(record));
  WriteText(directory() / ".tmp-stopped" / "sort" / "run-0", "half");
  fs::copy_file(directory() / "taken-back" / "dataset.json", directory() / ".imports" / "taken-back.deleted");
  // Killed in the middle of a deletion, by this version and by earlier ones, and of an atomic write.
  WriteText(directory() / ".deleted-3-gone" / "graphs.pfg", "half");
  WriteText(directory() / ".tmp-deleted-3-gone" / "graph.pfg", "half");
  WriteText(directory() / ".imports" / "new.json.tmp.abc123", "{");
  {
    const auto catalog = Open();
    EXPECT_EQ(catalog->Get(Id("published"))->state, DatasetState::kReady);
    const auto begun = AwaitEnd(*catalog, Id("begun"));
    ASSERT_TRUE(begun.ok());
    EXPECT_EQ(begun->state, DatasetState::kReady) << begun->error;
    EXPECT_EQ(begun->create_time, absl::FromUnixSeconds(1));
    EXPECT_EQ(catalog->List().size(), 2u) << "what was deleted stays so";
  }
  EXPECT_THAT(OnDisk(), ElementsAre("begun", "published"));
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(CatalogLeavingsTest, WhatTheCatalogDidNotMakeIsNeverRemoved) {
  WriteText(directory() / ".tmp-backup" / "precious", "1");
  WriteText(directory() / ".tmp-file", "2");
  WriteText(directory() / ".tmp-deleted-1-old" / "notes.txt", "3");
  WriteText(directory() / ".deleted-1-old" / "graphs.pfg" / "precious", "4");
  WriteText(directory() / ".deleted-old" / "graphs.pfg", "5");
  WriteText(directory() / ".imports" / "notes.json.tmp.of-mine", "6");
  WriteText(directory() / "mine" / "precious", "7");
  WriteText(directory() / ".mine" / "precious", "8");
  {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id("backup"), Options()).ok()) << "its name is free again";
    EXPECT_EQ(AwaitEnd(*catalog, Id("backup"))->state, DatasetState::kReady);
  }
  EXPECT_EQ(Quarantined(".tmp-backup", "precious"), "1");
  EXPECT_EQ(Quarantined(".tmp-file", ""), "2");
  EXPECT_EQ(Quarantined(".tmp-deleted-1-old", "notes.txt"), "3");
  EXPECT_EQ(Quarantined(".deleted-1-old", "graphs.pfg/precious"), "4");
  EXPECT_EQ(Quarantined(".deleted-old", "graphs.pfg"), "5");
  EXPECT_EQ(ReadOrError(directory() / ".imports" / "notes.json.tmp.of-mine"), "6");
  EXPECT_EQ(ReadOrError(directory() / "mine" / "precious"), "7");
  EXPECT_EQ(ReadOrError(directory() / ".mine" / "precious"), "8");
  ASSERT_THAT(Warnings(), SizeIs(5));
  EXPECT_THAT(Warnings(), Contains(AllOf(HasSubstr("/datasets/.tmp-backup: has a name of the server's own"),
                                         HasSubstr("; moved to "), HasSubstr("/.quarantine/"))));
  // A later start moves nothing twice and removes nothing.
  Open();
  EXPECT_THAT(Warnings(), SizeIs(5));
  EXPECT_EQ(Quarantined(".tmp-backup", "precious"), "1");
}

// This state arises if someone copies another day's .imports/ back.
TEST_F(CatalogLeavingsTest, AnImportWhoseNameIsTakenIsKept) {
  ImportNow("small");
  const std::string text = RecordToJson({.create_time = absl::FromUnixSeconds(1), .options = Options()});
  WriteText(directory() / ".imports" / "small.json", text);
  WriteText(directory() / ".imports" / "other.json", text);
  WriteText(directory() / "other" / "precious", "1");
  {
    const auto catalog = Open();
    EXPECT_EQ(catalog->Get(Id("small"))->state, DatasetState::kReady);
    EXPECT_EQ(catalog->Get(Id("other"))->state, DatasetState::kFailed);
  }
  EXPECT_EQ(Quarantined("small.json", ""), text);
  EXPECT_EQ(Quarantined("other.json", ""), text);
  EXPECT_EQ(ReadOrError(directory() / "other" / "precious"), "1");
  EXPECT_THAT(Warnings(), SizeIs(2));
}

TEST_F(CatalogLeavingsTest, AnImportOfTheSameMomentIsAnotherOne) {
  ImportNow("small");
  auto record = RecordFromJson(ReadOrError(directory() / "small" / "dataset.json"));
  ASSERT_TRUE(record.ok()) << record.status();
  record->uid = MakeDatasetUid();
  WriteText(directory() / ".imports" / "small.json", RecordToJson(*record));
  EXPECT_EQ(Open()->Get(Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(Quarantined("small.json", ""), RecordToJson(*record)) << "it had not published the dataset that is there";
}

TEST_F(CatalogLeavingsTest, ADatasetThatCannotBeOpenedSurvivesItsReplacement) {
  const struct {
    const char* name;
    std::function<void(const fs::path& dataset)> spoil;
  } kCases[] = {
      {"lost", [](const fs::path& dataset) { fs::remove(dataset / "dataset.json"); }},
      {"newer",
       [](const fs::path& dataset) {
         StoreImage store(*ReadFile(dataset / "graphs.pfg"));
         FileHeader header = store.header();
         header.version = kStoreVersion + 1;
         store.set_header(header);
         WriteText(dataset / "graphs.pfg", store.bytes());
       }},
      {"damaged", [](const fs::path& dataset) { WriteText(dataset / "graphs.pfg", "short"); }},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    ImportNow(c.name);
    c.spoil(directory() / c.name);
    const std::string store = ReadOrError(directory() / c.name / "graphs.pfg");
    {
      const auto catalog = Open();
      ASSERT_EQ(catalog->Get(Id(c.name))->state, DatasetState::kFailed);
      ASSERT_TRUE(catalog->Import(Id(c.name), Options()).ok());
      EXPECT_EQ(AwaitEnd(*catalog, Id(c.name))->state, DatasetState::kReady);
    }
    EXPECT_EQ(Quarantined(c.name, "graphs.pfg"), store);
    EXPECT_THAT(Warnings().back(), HasSubstr(std::string("/") + c.name + ": is replaced by an import; moved to "));
  }
}

TEST_F(CatalogLeavingsTest, DeletingWaitsForNoImport) {
  StuckImport stuck;
  {
    const auto catalog = Open(stuck.importer());
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    stuck.begun.WaitForNotification();
    ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
    EXPECT_EQ(catalog->Get(Id("small")).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(catalog->Delete(Id("small"), Unused).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(catalog->usage().imports.cancelled, 1);
    const auto again = catalog->Import(Id("small"), Options());
    ASSERT_TRUE(again.ok()) << again.status();
    stuck.let_go.Notify();
    const auto ready = AwaitEnd(*catalog, Id("small"));
    ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
    EXPECT_EQ(ready->create_time, again->create_time);
    EXPECT_EQ(catalog->usage().imports.succeeded, 1);
  }
  EXPECT_THAT(OnDisk(), ElementsAre("small"));
}

TEST_F(CatalogLeavingsTest, ADeletionOutlivesTheProcessThatTheImportHeldUp) {
  const auto die = [this] {
    StuckImport stuck;
    const auto catalog = Open(stuck.importer());
    catalog->Import(Id("small"), Options()).status().IgnoreError();
    stuck.begun.WaitForNotification();
    const absl::Status deleted = catalog->Delete(Id("small"), Unused);
    _exit(deleted.ok() ? 7 : 8);
  };
  EXPECT_EXIT(die(), ::testing::ExitedWithCode(7), "");
  EXPECT_THAT(OnDisk(), ElementsAre(".tmp-small", "small.deleted"));
  EXPECT_THAT(Open()->List(), IsEmpty());
  EXPECT_THAT(OnDisk(), IsEmpty());
}

}  // namespace
}  // namespace permafrost::data
