#include "data/catalog/upload_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "file_size_limit.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

UploadFile Declared(const std::string& path, const std::string& content) {
  return {.path = path, .bytes = std::ssize(content), .xxh3 = HashHex(Hash64(content))};
}

class UploadStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<UploadStore> OpenStore(uint64_t max_bytes = 1 << 20) {
    auto store =
        UploadStore::Create({.directory = directory_, .max_bytes = max_bytes, .warn = [this](std::string_view line) {
                               warnings_.emplace_back(line);
                             }});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // Makes everything in the directory look as if it was written `age` ago.
  void Age(std::chrono::hours age) const {
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - age);
    }
  }
  void Upload(UploadStore& store, const UploadId& id) const {
    auto writer = store.Open(id, files_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
    ASSERT_TRUE((*writer)->Append(1, 0, "world!", Hash64("world!")).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    ASSERT_TRUE((*writer)->complete());
  }

  TempDir dir_;
  const fs::path directory_ = dir_.path() / "uploads";
  const UploadId id_{"mine"};
  const std::vector<UploadFile> files_ = {Declared("a", "hello"), Declared("raw/b", "world!")};
  std::vector<std::string> warnings_;
};

// A dataset may share the file and would take a later change for damage.
TEST_F(UploadStoreTest, AFileThatCameIsNotTouchedAgain) {
  const auto store = OpenStore();
  Upload(*store, id_);
  Age(std::chrono::hours(1));
  const fs::path file = directory_ / "mine" / "files" / "a";
  const fs::file_time_type before = fs::last_write_time(file);
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(0, 5, "", Hash64("")).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ(fs::last_write_time(file), before);
}

TEST_F(UploadStoreTest, GoesOnWhereItWasAfterARestart) {
  {
    const auto store = OpenStore();
    const auto writer = store->Open(id_, files_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_THAT((*writer)->received(), ElementsAre(0, 0));
    ASSERT_TRUE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
    ASSERT_TRUE((*writer)->Append(1, 0, "wor", Hash64("wor")).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    EXPECT_FALSE((*writer)->complete());
  }
  const auto store = OpenStore();
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Source(id_).status()));
  {
    const auto writer = store->Open(id_, files_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_THAT((*writer)->received(), ElementsAre(5, 3));
    ASSERT_TRUE((*writer)->Append(1, 3, "ld!", Hash64("ld!")).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    EXPECT_TRUE((*writer)->complete());
  }
  const auto source = OpenStore()->Source(id_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(*ReadFile(*source / "a"), "hello");
  EXPECT_EQ(*ReadFile(*source / "raw/b"), "world!");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(UploadStoreTest, AFileThatIsNotWhatWasDeclaredIsEmptied) {
  const auto store = OpenStore();
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
  ASSERT_TRUE((*writer)->Append(1, 0, "world?", Hash64("world?")).ok());
  const absl::Status finished = (*writer)->Finish();
  EXPECT_TRUE(absl::IsDataLoss(finished)) << finished;
  EXPECT_THAT(std::string(finished.message()), HasSubstr("raw/b: has XXH3"));
  EXPECT_THAT((*writer)->received(), ElementsAre(5, 0));
  EXPECT_EQ(fs::file_size(directory_ / "mine/files/raw/b"), 0u);
  ASSERT_TRUE((*writer)->Append(1, 0, "world!", Hash64("world!")).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*writer)->complete());
}

TEST_F(UploadStoreTest, ABadChunkChangesNothing) {
  const auto store = OpenStore();
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(2, 0, "a", Hash64("a"))));
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(-1, 0, "a", Hash64("a"))));
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(0, 0, "helloo", Hash64("helloo"))));
  EXPECT_TRUE(absl::IsFailedPrecondition((*writer)->Append(0, 1, "a", Hash64("a"))));
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Append(0, 0, "a", Hash64("b"))));
  EXPECT_THAT((*writer)->received(), ElementsAre(0, 0));
}

TEST_F(UploadStoreTest, AFullDiskLosesNothingThatCame) {
  const std::string content(1000, 'x');
  const std::vector<UploadFile> files = {Declared("a", content)};
  const auto store = OpenStore();
  {
    const auto writer = store->Open(id_, files);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(0, 0, content.substr(0, 400), Hash64(content.substr(0, 400))).ok());
    const FileSizeLimit full(700);
    const absl::Status failed = (*writer)->Append(0, 400, content.substr(400), Hash64(content.substr(400)));
    EXPECT_TRUE(IsTransient(failed)) << failed;
  }
  const auto writer = store->Open(id_, files);
  ASSERT_TRUE(writer.ok());
  const int64_t there = (*writer)->received()[0];
  EXPECT_GE(there, 400);
  const std::string rest = content.substr(static_cast<size_t>(there));
  ASSERT_TRUE((*writer)->Append(0, there, rest, Hash64(rest)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*writer)->complete());
}

TEST_F(UploadStoreTest, OneWriterAtATime) {
  const auto store = OpenStore();
  {
    const auto writer = store->Open(id_, files_);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(absl::IsUnavailable(store->Open(id_, files_).status()));
    EXPECT_TRUE(absl::IsUnavailable(store->Delete(id_)));
  }
  EXPECT_TRUE(absl::IsAlreadyExists(store->Open(id_, {Declared("a", "other")}).status()));
  EXPECT_TRUE(store->Open(id_, files_).ok());
  EXPECT_TRUE(store->Delete(id_).ok());
  EXPECT_FALSE(fs::exists(directory_ / "mine"));
  EXPECT_TRUE(store->Delete(id_).ok());
  EXPECT_TRUE(absl::IsNotFound(store->Source(id_).status()));
}

TEST_F(UploadStoreTest, TheLimitIsOfAllTogetherAndKnownAfterARestart) {
  ASSERT_TRUE(OpenStore(15)->Open(id_, files_).ok());  // takes 11 bytes
  const auto store = OpenStore(15);
  const absl::Status refused = store->Open(UploadId("other"), {Declared("a", "hello")}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_FALSE(IsTransient(refused));
  EXPECT_EQ(GetReason(refused), (ErrorReason{"UPLOAD_TOO_LARGE", {{"limit", "15"}}}));
  EXPECT_TRUE(store->Open(UploadId("other"), {Declared("a", "four")}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(OpenStore(0)->Open(UploadId("third"), {Declared("a", "")}).status()));
  // The sum of these sizes exceeds 64 bits.
  std::vector<UploadFile> huge = {Declared("a", ""), Declared("b", ""), Declared("c", "")};
  for (UploadFile& file : huge) file.bytes = INT64_MAX;
  EXPECT_TRUE(absl::IsResourceExhausted(store->Open(UploadId("huge"), huge).status()));
}

TEST_F(UploadStoreTest, OldOnesAreRemovedWhereTheyAreProvenToBeUploads) {
  Upload(*OpenStore(), id_);
  const UploadId young("young"), extra("extra");
  for (const UploadId& id : {young, extra}) Upload(*OpenStore(), id);
  fs::create_directories(directory_ / "strange/files");
  fs::create_directories(directory_ / "copied");
  fs::copy(directory_ / "mine/upload.json", directory_ / "copied/upload.json");
  std::ofstream(directory_ / "extra/notes") << "a person's";
  const auto before = OpenStore();
  Age(std::chrono::hours(25));
  ASSERT_TRUE(before->Source(young).ok()) << "as young as a new one from now on";
  warnings_.clear();
  const auto store = OpenStore();
  EXPECT_FALSE(fs::exists(directory_ / "mine"));
  EXPECT_TRUE(store->Source(young).ok());
  EXPECT_TRUE(fs::exists(directory_ / "strange/files"));
  EXPECT_TRUE(fs::exists(directory_ / "copied/upload.json"));
  EXPECT_EQ(*ReadFile(directory_ / "extra/notes"), "a person's");
  EXPECT_FALSE(fs::exists(directory_ / "extra/files"));
  EXPECT_THAT(warnings_, UnorderedElementsAre(HasSubstr("strange: not known to be an upload"),
                                              HasSubstr("copied: not known to be an upload"),
                                              HasSubstr("uploads/extra: nothing was done with it for 24h; removed"),
                                              HasSubstr("uploads/mine: nothing was done with it for 24h; removed")));
}

TEST_F(UploadStoreTest, AnOldOneThatIsInUseStays) {
  for (const UploadId& id : {id_, UploadId("done")}) Upload(*OpenStore(), id);
  Age(std::chrono::hours(25));
  const auto store = UploadStore::Create(
      {.directory = directory_, .in_use = [this](const fs::path& folder) { return folder == directory_ / "mine"; }});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Source(id_).ok());
  EXPECT_FALSE(fs::exists(directory_ / "done"));
}

TEST_F(UploadStoreTest, OneThatIsInUseIsNotDeleted) {
  bool in_use = true;
  const auto store =
      UploadStore::Create({.directory = directory_, .in_use = [&](const fs::path& /*folder*/) { return in_use; }});
  ASSERT_TRUE(store.ok()) << store.status();
  Upload(**store, id_);
  const absl::Status refused = (*store)->Delete(id_);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("uploads/mine: an import reads it"));
  EXPECT_TRUE((*store)->Source(id_).ok());
  in_use = false;
  EXPECT_EQ((*store)->Delete(id_), absl::OkStatus());
  EXPECT_FALSE(fs::exists(directory_ / "mine"));
}

TEST_F(UploadStoreTest, AFileThatADatasetSharesIsSentAnewAndTheDatasetKeepsIt) {
  const auto store = OpenStore();
  const auto writer = store->Open(id_, {Declared("a", "hello")});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(0, 0, "HELLO", Hash64("HELLO")).ok());
  fs::create_hard_link(directory_ / "mine/files/a", dir_.path() / "shared");
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Finish())) << "it is not what was declared";
  EXPECT_EQ(*ReadFile(dir_.path() / "shared"), "HELLO");
  ASSERT_TRUE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ(*ReadFile(dir_.path() / "shared"), "HELLO");
  EXPECT_EQ(*ReadFile(directory_ / "mine/files/a"), "hello");
}

// A power cut may leave an upload like this.
TEST_F(UploadStoreTest, OneWhoseBytesAreLostIsNotComplete) {
  Upload(*OpenStore(), id_);
  fs::resize_file(directory_ / "mine/files/raw/b", 3);
  const auto store = OpenStore();
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Source(id_).status()));
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_FALSE((*writer)->complete());
  EXPECT_THAT((*writer)->received(), ElementsAre(5, 3));
  ASSERT_TRUE((*writer)->Append(1, 3, "ld?", Hash64("ld?")).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Source(id_).status())) << "nobody has checked them";
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Finish()));
  ASSERT_TRUE((*writer)->Append(1, 0, "world!", Hash64("world!")).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*writer)->complete());
  EXPECT_TRUE(store->Source(id_).ok());
}

TEST_F(UploadStoreTest, ItsFoldersComeToDiskBeforeItIsComplete) {
  const auto store = OpenStore();
  const auto writer = store->Open(id_, {Declared("a", "hello")});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
  absl::Status finished;
  {
    const NoDescriptors none;
    finished = (*writer)->Finish();
  }
  EXPECT_TRUE(IsTransient(finished)) << finished;
  EXPECT_THAT(std::string(finished.message()), HasSubstr("uploads/mine: cannot open"));
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*writer)->complete());
}

// The client may try again if the machine failed after the declaration was renamed to its name.
TEST_F(UploadStoreTest, OneThatIsThereIsTakenUp) {
  const auto store = OpenStore(15);
  Upload(*OpenStore(15), id_);  // takes 11 bytes
  EXPECT_THAT(std::string(store->Open(id_, {Declared("a", "other")}).status().message()),
              HasSubstr("is there with other files"));
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->complete());
  EXPECT_TRUE(absl::IsResourceExhausted(store->Open(UploadId("next"), {Declared("a", "hello")}).status()));
}

// A link to itself gives an error of the system, and not one that says that this is no upload.
TEST_F(UploadStoreTest, ADeclarationThatCannotBeReadJustNowIsReadLater) {
  Upload(*OpenStore(), id_);
  const fs::path declaration = directory_ / "mine/upload.json", aside = dir_.path() / "aside";
  fs::rename(declaration, aside);
  fs::create_symlink("upload.json", declaration);
  const auto store = OpenStore(15);
  EXPECT_THAT(warnings_, IsEmpty());
  for (const absl::Status& status :
       {store->Open(id_, files_).status(), store->Source(id_).status(), store->Delete(id_)}) {
    EXPECT_TRUE(IsTransient(status)) << status;
  }
  fs::rename(aside, declaration);
  EXPECT_TRUE(absl::IsResourceExhausted(store->Open(UploadId("next"), {Declared("a", "hello")}).status()))
      << "its 11 bytes count";
  EXPECT_TRUE(store->Source(id_).ok());
  EXPECT_TRUE(store->Open(id_, files_).ok());
}

TEST_F(UploadStoreTest, OneThatIsWrittenToIsNotOld) {
  const auto store = OpenStore();
  const auto writer = store->Open(id_, files_);
  ASSERT_TRUE(writer.ok());
  Age(std::chrono::hours(25));
  ASSERT_TRUE(store->Open(UploadId("next"), files_).ok());
  EXPECT_TRUE(fs::exists(directory_ / "mine/upload.json"));
}

TEST_F(UploadStoreTest, WhatOthersPutThereIsNotWrittenTo) {
  const auto store = OpenStore();
  fs::create_directories(directory_ / "mine/files");
  EXPECT_TRUE(absl::IsAlreadyExists(store->Open(id_, files_).status()));
  const UploadId linked("linked");
  const auto writer = store->Open(linked, files_);
  ASSERT_TRUE(writer.ok());
  std::ofstream(dir_.path() / "outside") << "kept";
  fs::create_directories(directory_ / "linked/files");
  fs::create_symlink(dir_.path() / "outside", directory_ / "linked/files/a");
  EXPECT_FALSE((*writer)->Append(0, 0, "hello", Hash64("hello")).ok());
  EXPECT_EQ(*ReadFile(dir_.path() / "outside"), "kept");
}

TEST(CheckUpload, PathsStayWithinTheUpload) {
  const struct {
    const char* why;
    std::string path;
    bool ok;
  } kCases[] = {
      {"a name", "a", true},
      {"folders", "split/scaffold/train.csv.gz", true},
      {"a dash", "num-node-list.csv", true},
      {"nothing", "", false},
      {"absolute", "/etc/passwd", false},
      {"up", "../a", false},
      {"up from below", "a/../../b", false},
      {"here", "./a", false},
      {"an empty name", "a//b", false},
      {"a folder", "a/", false},
      {"hidden", "raw/.b", false},
      {"a line break", "a\nb", false},
      {"a NUL", std::string("a\0b", 3), false},
      {"a backslash", "a\\b", false},
      {"long", std::string(256, 'a'), false},
  };
  for (const auto& c : kCases) EXPECT_EQ(CheckUpload({Declared(c.path, "")}).ok(), c.ok) << c.why;
}

TEST(CheckUpload, EveryBadFieldIsTold) {
  std::vector<UploadFile> files = {Declared("a", ""), Declared("a/b", ""), Declared("c", ""), Declared("c", "")};
  files[0].bytes = -1;
  files[2].xxh3 = "0123456789ABCDEF";
  std::vector<std::string> fields;
  for (const FieldViolation& violation : GetViolations(CheckUpload(files))) fields.push_back(violation.field);
  EXPECT_THAT(fields, UnorderedElementsAre("start.files[0].bytes", "start.files[1].path", "start.files[2].xxh3",
                                           "start.files"));
  EXPECT_FALSE(CheckUpload({}).ok());
  EXPECT_FALSE(CheckUpload(std::vector<UploadFile>(kMostUploadFiles + 1, Declared("a", ""))).ok());
}

}  // namespace
}  // namespace permafrost::data
