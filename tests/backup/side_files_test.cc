// Tests what a backup contains besides jobs and datasets, repeated calls for a backup, and a disk that fills up
// during one.
#include "backup/copies.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backup/backup.h"
#include "backup/manifest.h"
#include "base/file.h"
#include "base/status.h"
#include "jobs/job_store.h"
#include "temp_dir.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

void WriteText(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

class SideFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    fs::create_directories(state_);
    ASSERT_TRUE(jobs::JobStore::Open(state_ / "permafrost.db").ok());
  }
  static bool GoOn(int64_t /*done*/, int64_t /*total*/) { return true; }
  Request Of(const std::string& name, const std::string& request_id = "") const {
    return {
        .state_dir = state_, .root = root_, .directory = name, .version = "1", .reserve = {}, .request_id = request_id};
  }

  const TempDir dir_;
  const fs::path state_ = dir_.path() / "state", root_ = dir_.path() / "root";
};

TEST_F(SideFilesTest, ProgramsAreInItWhole) {
  WriteText(state_ / "programs/net/program.pt2", "archive");
  WriteText(state_ / "programs/net/program.json", "{}");
  WriteText(state_ / "programs/.upload-1-other/program.pt2", "half");
  WriteText(state_ / "programs/.quarantine/x", "not ours");
  ASSERT_TRUE(Make(Of("one"), GoOn).ok());
  EXPECT_EQ(*ReadFile(root_ / "one/programs/net/program.pt2"), "archive");
  EXPECT_EQ(*ReadFile(root_ / "one/programs/net/program.json"), "{}");
  EXPECT_FALSE(fs::exists(root_ / "one/programs/.upload-1-other"));
  EXPECT_FALSE(fs::exists(root_ / "one/programs/.quarantine"));
}

TEST_F(SideFilesTest, TheAuditLogAndWantedImportsAreInIt) {
  for (const char* name : {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"})
    WriteText(state_ / name, std::string(name) + "\n");
  WriteText(state_ / "datasets/.imports/qm9.json", "{\"wanted\": true}");
  WriteText(state_ / "datasets/.imports/zinc.json", "{}");
  WriteText(state_ / "datasets/.imports/zinc.json.tmp.abcdef", "half");
  const auto made = Make(Of("one"), GoOn);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->imports, ElementsAre("qm9", "zinc"));
  for (const char* name : {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"}) {
    EXPECT_EQ(ReadFile(root_ / "one" / name).value_or(""), std::string(name) + "\n");
  }
  EXPECT_EQ(ReadFile(root_ / "one/datasets/.imports/qm9.json").value_or(""), "{\"wanted\": true}");
  EXPECT_FALSE(fs::exists(root_ / "one/datasets/.imports/zinc.json.tmp.abcdef"));
  // The daemon that continues from this backup reads this manifest.
  const auto manifest = ReadManifest(root_ / "one");
  ASSERT_TRUE(manifest.ok() && *manifest);
  EXPECT_THAT((*manifest)->imports, ElementsAre("qm9", "zinc"));
  EXPECT_GT((*manifest)->create_time, absl::UnixEpoch());
  EXPECT_TRUE(CheckFiles(root_ / "one", **manifest).ok());
}

TEST_F(SideFilesTest, AnAuditLogThatRotatesMeanwhileLosesNoLine) {
  WriteText(state_ / "audit.jsonl", "second\n");
  WriteText(state_ / "audit.jsonl.1", "first\n");
  bool rotated = false;
  // Rotates the audit log after the copy of the older file, which comes first, and before the copy of the newest.
  Copier copier(state_, dir_.path() / "copy", 0, {}, [&](int64_t, int64_t) {
    if (rotated) return true;
    rotated = true;
    fs::rename(state_ / "audit.jsonl.1", state_ / "audit.jsonl.2");
    fs::rename(state_ / "audit.jsonl", state_ / "audit.jsonl.1");
    WriteText(state_ / "audit.jsonl", "third\n");
    return true;
  });
  ASSERT_TRUE(CopyAudit(state_, copier).ok());
  EXPECT_EQ(ReadFile(dir_.path() / "copy/audit.jsonl").value_or(""), "third\n");
  EXPECT_EQ(ReadFile(dir_.path() / "copy/audit.jsonl.1").value_or(""), "second\n");
  EXPECT_EQ(ReadFile(dir_.path() / "copy/audit.jsonl.2").value_or(""), "first\n");
  EXPECT_EQ(copier.files().size(), 3U);
}

TEST_F(SideFilesTest, ACallThatComesAgainIsToldWhatItMade) {
  WriteText(state_ / "plans/a.plan", "plan");
  const auto first = Make(Of("one", "r1"), GoOn);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto untouched = fs::last_write_time(root_ / "one" / kManifestFile);
  const auto again = Make(Of("one", "r1"), GoOn);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->path, first->path);
  EXPECT_EQ(again->files, first->files);
  EXPECT_EQ(again->bytes, first->bytes);
  EXPECT_EQ(fs::last_write_time(root_ / "one" / kManifestFile), untouched);
  EXPECT_TRUE(absl::IsAlreadyExists(Make(Of("one", "r2"), GoOn).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(Make(Of("one"), GoOn).status()));
  fs::remove_all(root_ / "one");
  Request answered = Of("one", "r1");
  answered.answered = true;
  EXPECT_TRUE(absl::IsNotFound(Make(answered, GoOn).status())) << "it is not made again";
  EXPECT_FALSE(fs::exists(root_ / "one"));
}

TEST_F(SideFilesTest, ADiskThatFillsWhileItCopiesEndsItAndNothingStays) {
  WriteText(state_ / "plans/a.plan", std::string(4 << 20, 'x'));
  const DiskReserve probe(root_, 1);
  const std::optional<uint64_t> free = probe.Free();
  constexpr uint64_t kRoom = uint64_t{256} << 20, kTaken = uint64_t{1} << 30;
  if (!free || *free < 2 * kTaken) GTEST_SKIP() << "too little of the disk is free";
  Request request = Of("one");
  request.reserve = DiskReserve(root_, *free - kRoom);
  const fs::path taken = dir_.path() / "taken";
  int told = 0;
  const auto made = Make(request, [&](int64_t, int64_t) {
    if (++told > 1) return true;
    const Descriptor file = OpenRetrying(taken, O_WRONLY | O_CREAT, 0600);
    EXPECT_EQ(posix_fallocate(file.get(), 0, kTaken), 0);
    return true;
  });
  EXPECT_GT(told, 0) << "it had begun";
  EXPECT_EQ(GetReason(made.status()).reason, "DISK_NEARLY_FULL") << made.status();
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(root_)) left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ElementsAre(".lock"));
}

}  // namespace
}  // namespace permafrost::backup
