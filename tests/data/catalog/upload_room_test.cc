// The share that each upload takes of the bytes allowed for all uploads, and how the totals report it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/catalog/upload_store.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<UploadFile> OneFile(const std::string& content) {
  return {{.path = "a", .bytes = std::ssize(content), .xxh3 = HashHex(Hash64(content))}};
}

class UploadRoomTest : public ::testing::Test {
 protected:
  // Opens a store with room for 100 bytes.
  std::unique_ptr<UploadStore> OpenStore(absl::Duration keep_room, absl::Duration max_age = absl::Hours(24)) {
    auto store = UploadStore::Create({.directory = directory_,
                                      .max_bytes = 100,
                                      .keep_room = keep_room,
                                      .max_age = max_age,
                                      .now = [this] { return now_; },
                                      .warn = [](std::string_view) {}});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // Acts as a client that sends 10 of 90 declared bytes and dies.
  void Die(UploadStore& store, const std::string& id) const {
    const auto writer = store.Open(UploadId(id), large_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const std::string piece = content_.substr(0, 10);
    ASSERT_TRUE((*writer)->Append(0, 0, piece, Hash64(piece)).ok());
  }

  const TempDir dir_;
  const fs::path directory_ = dir_.path() / "uploads";
  const std::string content_ = std::string(90, 'x');
  const std::vector<UploadFile> large_ = OneFile(content_);
  std::optional<absl::Time> now_ = absl::Now();
};

TEST_F(UploadRoomTest, ADeadClientHoldsRoomForAWhileOnly) {
  {
    const auto store = OpenStore(absl::Minutes(15));
    Die(*store, "dead");
    const absl::Status refused = store->Open(UploadId("other"), large_).status();
    EXPECT_EQ(GetReason(refused).reason, "UPLOAD_TOO_LARGE");
    EXPECT_THAT(std::string(refused.message()), HasSubstr("other uploads, which take 90 (ListUploads tells them)"));
    EXPECT_EQ(store->totals().counted, 90u);
    EXPECT_EQ(store->totals().received, 10u);
  }
  // With a keep_room of zero, an upload keeps no room for bytes that it has not sent.
  const auto store = OpenStore(absl::ZeroDuration());
  EXPECT_EQ(store->totals().counted, 10u) << "what came is known after a restart";
  const auto writer = store->Open(UploadId("other"), large_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(store->totals().counted, 100u) << "a live call counts as declared";
  const absl::Status no_room = store->Open(UploadId("dead"), large_).status();
  EXPECT_EQ(GetReason(no_room).reason, "UPLOAD_TOO_LARGE") << "its room is another's by now";
}

TEST_F(UploadRoomTest, OneGoesOnWhereThereIsRoomAgain) {
  const auto store = OpenStore(absl::ZeroDuration());
  Die(*store, "dead");
  Die(*store, "deader");
  ASSERT_TRUE(store->Delete(UploadId("deader")).ok());
  const auto writer = store->Open(UploadId("dead"), large_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string rest = content_.substr(10);
  ASSERT_TRUE((*writer)->Append(0, 10, rest, Hash64(rest)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*writer)->complete());
}

TEST_F(UploadRoomTest, AListTellsThemByName) {
  const auto store = OpenStore(absl::ZeroDuration());
  Die(*store, "b");
  const auto writer = store->Open(UploadId("a"), OneFile("whole"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(0, 0, "whole", Hash64("whole")).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto list = store->List(UploadId(), 10);
  ASSERT_THAT(list, SizeIs(2));
  EXPECT_EQ(list[0].id.value(), "a");
  EXPECT_TRUE(list[0].complete);
  EXPECT_TRUE(list[0].account.sending);
  EXPECT_EQ(list[0].account.received, 5u);
  EXPECT_EQ(list[1].id.value(), "b");
  EXPECT_FALSE(list[1].complete);
  EXPECT_FALSE(list[1].account.sending);
  EXPECT_EQ(list[1].files, 1);
  EXPECT_EQ(list[1].account.declared, 90u);
  EXPECT_EQ(list[1].account.received, 10u);
  EXPECT_EQ(list[1].account.counted, 10u);
  EXPECT_LT(absl::Now() - list[1].last_use, absl::Minutes(5));
  EXPECT_THAT(store->List(UploadId("a"), 10), SizeIs(1));
  EXPECT_THAT(store->List(UploadId(), 1), SizeIs(1));
}

TEST_F(UploadRoomTest, NothingGoesForItsAgeWhileTheClockIsInDoubt) {
  const auto store = OpenStore(absl::ZeroDuration());
  Die(*store, "dead");
  now_.reset();
  EXPECT_THAT(store->List(UploadId(), 10), SizeIs(1));
  now_ = absl::Now() + absl::Hours(400 * 24);
  EXPECT_THAT(store->List(UploadId(), 10), IsEmpty());
}

TEST_F(UploadRoomTest, FilesOfAClockThatWasAheadGoOnceThisProcessHasSeenADay) {
  {
    const auto store = OpenStore(absl::ZeroDuration());
    Die(*store, "dead");
  }
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() + std::chrono::hours(400 * 24));
  }
  const auto store = OpenStore(absl::ZeroDuration(), /*max_age=*/absl::Seconds(2));
  EXPECT_THAT(store->List(UploadId(), 10), SizeIs(1));
  absl::SleepFor(absl::Milliseconds(2'200));
  EXPECT_THAT(store->List(UploadId(), 10), IsEmpty());
}

TEST(UploadAccountTest, ABytePutsTheEndOff) {
  UploadAccount account(absl::Seconds(1));
  const UploadId id("a");
  account.Put(id, 100, 0);
  for (int i = 1; i <= 4; ++i) {
    absl::SleepFor(absl::Milliseconds(300));
    account.SetReceived(id, static_cast<uint64_t>(i));
  }
  EXPECT_EQ(account.Find(id)->counted, 100u);
  absl::SleepFor(absl::Milliseconds(1'200));
  EXPECT_EQ(account.Find(id)->counted, 4u);
  account.SetSending(id, true);
  absl::SleepFor(absl::Milliseconds(1'200));
  EXPECT_EQ(account.Find(id)->counted, 100u) << "for as long as a call sends";
  EXPECT_EQ(account.CountedBeside(id), 0u);
  account.Erase(id);
  EXPECT_FALSE(account.Find(id));
  EXPECT_EQ(account.totals().uploads, 0);
}

}  // namespace
}  // namespace permafrost::data
