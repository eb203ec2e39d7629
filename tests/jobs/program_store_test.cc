// Tests programs on disk: each is complete or absent, whatever interrupts an upload or a deletion.
#include "jobs/program_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "file_size_limit.h"
#include "jobs/fakes.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ProgramArchive ArchiveOf(const std::string& bytes) {
  return {.bytes = static_cast<int64_t>(bytes.size()), .xxh3 = HashHex(Hash64(bytes))};
}

class ProgramStoreTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  // Opens the store as a new process does.
  void Start(uint64_t max_bytes = 1000) {
    store_.reset();
    warnings_.clear();
    auto store = ProgramStore::Open({.directory = directory_,
                                     .describe = [this](const fs::path& path) { return runner_.DescribeProgram(path); },
                                     .max_bytes = max_bytes,
                                     .warn = [this](std::string_view line) { warnings_.emplace_back(line); }});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  absl::StatusOr<StoredProgram> Upload(const std::string& name, const std::string& bytes) {
    PF_ASSIGN_OR_RETURN(const auto upload, store_->BeginUpload(ProgramId(name), ArchiveOf(bytes)));
    PF_RETURN_IF_ERROR(upload->Append(bytes));
    return upload->Finish();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const StoredProgram& program : store_->List(ProgramId(), 100)) names.push_back(program.id.value());
    return names;
  }
  // Returns the entries of the directory, sorted.
  std::vector<std::string> OnDisk() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  void Put(const fs::path& path, const std::string& text) const {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path, std::ios::binary) << text;
  }

  const TempDir dir_;
  const fs::path directory_ = dir_.path() / "programs";
  FakeRunner runner_;
  std::vector<std::string> warnings_;
  std::unique_ptr<ProgramStore> store_;
};

TEST_F(ProgramStoreTest, WhatWasUploadedIsThereAfterARestart) {
  const auto uploaded = Upload("mine", "program one");
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  for (const bool restarted : {false, true}) {
    if (restarted) Start();
    const auto program = store_->Get(ProgramId("mine"));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->bytes, 11);
    EXPECT_EQ(program->xxh3, HashHex(Hash64("program one")));
    EXPECT_EQ(program->etag, uploaded->etag);
    EXPECT_EQ(program->create_time, uploaded->create_time);
    EXPECT_EQ(program->description, uploaded->description);
    EXPECT_THAT(program->description.tensors, SizeIs(2));
    EXPECT_EQ(*ReadFile(*store_->PathOf(ProgramId("mine"))), "program one");
  }
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_THAT(OnDisk(), ElementsAre("mine"));
  EXPECT_EQ(store_->usage().programs, 1);
  EXPECT_EQ(store_->usage().bytes, 11U);
}

TEST_F(ProgramStoreTest, AnEqualUploadIsTheProgramAsItIsAndAnotherIsRefused) {
  const auto first = Upload("mine", "program one");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = store_->FindEqual(ProgramId("mine"), ArchiveOf("program one"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->etag, first->etag);
  const absl::Status other = Upload("mine", "program two").status();
  EXPECT_TRUE(absl::IsAlreadyExists(other)) << other;
  EXPECT_EQ(GetReason(other).reason, "PROGRAM_ALREADY_EXISTS");
  EXPECT_EQ(*ReadFile(*store_->PathOf(ProgramId("mine"))), "program one");
}

TEST_F(ProgramStoreTest, OfTwoUploadsAtOnceTheFirstToEndHasTheName) {
  const std::string one = "program one", two = "program two";
  auto a = store_->BeginUpload(ProgramId("mine"), ArchiveOf(one));
  auto b = store_->BeginUpload(ProgramId("mine"), ArchiveOf(one));
  auto c = store_->BeginUpload(ProgramId("mine"), ArchiveOf(two));
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(store_->usage().uploading_bytes, 33U);
  ASSERT_TRUE((*a)->Append(one).ok() && (*b)->Append(one).ok() && (*c)->Append(two).ok());
  const auto first = (*a)->Finish(), equal = (*b)->Finish(), other = (*c)->Finish();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_EQ(equal->etag, first->etag);
  EXPECT_TRUE(absl::IsAlreadyExists(other.status())) << other.status();
  for (auto* upload : {&a, &b, &c}) upload->value().reset();
  EXPECT_THAT(OnDisk(), ElementsAre("mine"));
  EXPECT_EQ(store_->usage().uploading_bytes, 0U);
}

TEST_F(ProgramStoreTest, AnUploadThatIsNotFinishedLeavesNothing) {
  {
    auto upload = store_->BeginUpload(ProgramId("mine"), ArchiveOf("program one"));
    ASSERT_TRUE(upload.ok()) << upload.status();
    ASSERT_TRUE((*upload)->Append("program").ok());
    EXPECT_THAT(OnDisk(), SizeIs(1));
    const absl::Status short_of_it = (*upload)->Finish().status();
    EXPECT_TRUE(absl::IsInvalidArgument(short_of_it)) << short_of_it;
    const absl::Status beyond = (*upload)->Append(" one and more");
    EXPECT_TRUE(absl::IsInvalidArgument(beyond)) << beyond;
  }
  EXPECT_THAT(OnDisk(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(store_->Get(ProgramId("mine")).status()));
}

TEST_F(ProgramStoreTest, BadBytesAreRefused) {
  auto upload = store_->BeginUpload(ProgramId("mine"), ArchiveOf("program one"));
  ASSERT_TRUE(upload.ok()) << upload.status();
  ASSERT_TRUE((*upload)->Append("program 0ne").ok());
  EXPECT_TRUE(absl::IsDataLoss((*upload)->Finish().status()));
  *upload = nullptr;
  const absl::Status no_program = Upload("mine", "a cake").status();
  EXPECT_TRUE(absl::IsInvalidArgument(no_program)) << no_program;
  EXPECT_THAT(std::string(no_program.message()), HasSubstr("programs/mine"));
  EXPECT_THAT(OnDisk(), IsEmpty());
}

TEST_F(ProgramStoreTest, AllProgramsTogetherAreBounded) {
  Start(/*max_bytes=*/20);
  ASSERT_TRUE(Upload("mine", "program one").ok());
  const absl::Status refused = Upload("yours", "program two").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "PROGRAMS_TOO_LARGE");
  EXPECT_EQ(GetReason(refused).metadata.at("limit"), "20");
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), "").ok());
  EXPECT_TRUE(Upload("yours", "program two").ok());
}

TEST_F(ProgramStoreTest, AFullDiskIsAnErrorOfTheMachine) {
  auto upload = store_->BeginUpload(ProgramId("mine"), ArchiveOf("program one"));
  ASSERT_TRUE(upload.ok()) << upload.status();
  ASSERT_TRUE((*upload)->Append("program one").ok());
  {
    const FileSizeLimit full(4);
    const absl::Status failed = (*upload)->Finish().status();
    EXPECT_TRUE(IsTransient(failed)) << failed;
  }
  *upload = nullptr;
  EXPECT_THAT(OnDisk(), IsEmpty());
  EXPECT_TRUE(Upload("mine", "program one").ok());
}

TEST_F(ProgramStoreTest, DeletesTheOneThatIsMeant) {
  const auto first = Upload("mine", "program one");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), first->etag).ok());
  EXPECT_THAT(OnDisk(), IsEmpty());
  const auto second = Upload("mine", "program one");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->etag, first->etag);
  const absl::Status other = store_->Delete(ProgramId("mine"), first->etag);
  EXPECT_TRUE(absl::IsAborted(other)) << other;
  EXPECT_EQ(GetReason(other).reason, "ETAG_MISMATCH");
  const absl::Status none = store_->Delete(ProgramId("yours"), "");
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_EQ(GetReason(none).reason, "PROGRAM_NOT_FOUND");
  EXPECT_THAT(Names(), ElementsAre("mine"));
}

TEST_F(ProgramStoreTest, ListsByNameAfterOne) {
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(Upload(name, absl::StrCat("program ", name)).ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c"));
  const auto rest = store_->List(ProgramId("a"), 1);
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_EQ(rest[0].id.value(), "b");
  EXPECT_EQ(rest[0].description.num_parameters, 9);
  EXPECT_THAT(rest[0].description.tensors, IsEmpty()) << "told by Get alone";
}

TEST_F(ProgramStoreTest, ACopyIsALinkThatOutlivesTheProgram) {
  ASSERT_TRUE(Upload("mine", "program one").ok());
  const fs::path copy = dir_.path() / "copy.pt2";
  ASSERT_TRUE(store_->CopyTo(ProgramId("mine"), copy).ok());
  struct stat file {};
  ASSERT_EQ(stat(copy.c_str(), &file), 0);
  EXPECT_EQ(file.st_nlink, 2U) << "no second copy of the bytes";
  EXPECT_FALSE(store_->CopyTo(ProgramId("mine"), copy).ok()) << "it replaces nothing";
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), "").ok());
  EXPECT_EQ(*ReadFile(copy), "program one");
  EXPECT_TRUE(absl::IsNotFound(store_->CopyTo(ProgramId("mine"), dir_.path() / "other.pt2")));
}

TEST_F(ProgramStoreTest, ADamagedArchiveIsNotCopied) {
  ASSERT_TRUE(Upload("mine", "program one").ok());
  std::ofstream(*store_->PathOf(ProgramId("mine")), std::ios::binary) << "program 0ne";
  const fs::path copy = dir_.path() / "copy.pt2";
  const absl::Status damaged = store_->CopyTo(ProgramId("mine"), copy);
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_FALSE(fs::exists(copy));
}

TEST_F(ProgramStoreTest, AStartRemovesWhatACrashLeft) {
  Put(".upload-1-mine/program.pt2", "progr");
  Put(".upload-2-mine/program.pt2", "program one");
  Put(".upload-2-mine/program.json", "{");
  fs::create_directories(directory_ / ".upload-3-mine");
  Put(".deleted-4-yours/program.json", "{}");
  Start();
  EXPECT_THAT(OnDisk(), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ProgramStoreTest, WhatIsNotProvenItsOwnIsSetAsideAndNeverRemoved) {
  ASSERT_TRUE(Upload("whole", "program one").ok());
  Put(".upload-1-mine/notes.txt", "mine");
  Put(".deleted-mine/program.pt2", "program");
  Put("half/program.pt2", "program one");
  Put("file", "text");
  Put("lost+found/x", "not ours");
  ASSERT_TRUE(Upload("cut", "program two").ok());
  Put("cut/program.pt2", "program");
  Start();
  EXPECT_THAT(Names(), ElementsAre("whole"));
  EXPECT_THAT(OnDisk(), ElementsAre(".quarantine", "lost+found", "whole"));
  EXPECT_THAT(warnings_, SizeIs(5));
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory_ / ".quarantine"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 6) << "of five entries, the one of cut with its record";
  Start();
  EXPECT_THAT(warnings_, IsEmpty()) << "it is told once";
}

TEST_F(ProgramStoreTest, AForeignFileInAProgramsFolderIsNotRemovedWithIt) {
  ASSERT_TRUE(Upload("mine", "program one").ok());
  Put("mine/notes.txt", "mine");
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), "").ok());
  EXPECT_THAT(warnings_, SizeIs(1));
  Start();
  EXPECT_THAT(OnDisk(), ElementsAre(".quarantine"));
}

TEST_F(ProgramStoreTest, BadDeclarationsAreAllTold) {
  const auto violations = GetViolations(CheckProgramArchive({.bytes = 0, .xxh3 = "ABC"}));
  ASSERT_THAT(violations, SizeIs(2));
  EXPECT_EQ(violations[0].field, "start.bytes");
  EXPECT_EQ(violations[1].field, "start.xxh3");
}

}  // namespace
}  // namespace permafrost::jobs
