#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 64 << 10;

  void SetUp() override {
    ASSERT_TRUE(WriteFileAtomic(path_, std::string(kBytes, 'x')).ok());
    auto file = MappedFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  std::string_view Content() const { return {reinterpret_cast<const char*>(file_->data()), file_->size()}; }
  void ExpectDataLoss(std::string_view how) const {
    const absl::Status status = file_->CheckIntact();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_.string()));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(how)));
  }

  TempDir dir_;
  const fs::path path_ = dir_.path() / "file";
  std::unique_ptr<MappedFile> file_;
};

TEST_F(MappedFileTest, IsTheFile) {
  EXPECT_EQ(Content(), std::string(kBytes, 'x'));
  EXPECT_TRUE(file_->CheckIntact().ok());
}

TEST_F(MappedFileTest, WhatIsCutOffReadsAsZerosAndIsDataLoss) {
  fs::resize_file(path_, 10'000);
  // Reads one byte of each page, the last page first. Without the handler, the first read would kill the process.
  for (size_t at = kBytes; at > 0; at -= 4096) EXPECT_TRUE(Content()[at - 1] == 'x' || Content()[at - 1] == '\0');
  EXPECT_EQ(Content()[kBytes - 1], '\0');
  EXPECT_EQ(Content()[100], 'x') << "what is left is still there";
  ExpectDataLoss("cut short");
  // The lost bytes do not return when the file grows back.
  fs::resize_file(path_, kBytes);
  // in case the file system's clock is too coarse
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(1));
  ExpectDataLoss("cut short");
}

// Looks like a disk error: a read failed, but the file is as it was.
TEST_F(MappedFileTest, AReadThatFailsOfAFileThatIsWholeIsTransient) {
  const auto time = fs::last_write_time(path_);
  fs::resize_file(path_, 10'000);
  EXPECT_EQ(Content()[kBytes - 1], '\0');
  ASSERT_TRUE(WriteFileSynced(path_, std::string(kBytes, 'x')).ok());
  fs::last_write_time(path_, time);
  const absl::Status status = file_->CheckIntact();
  EXPECT_TRUE(IsTransient(status)) << status;
  EXPECT_FALSE(absl::IsDataLoss(status));
  EXPECT_EQ(std::string(status.message()), path_.string() + ": cannot read: Input/output error");
  const auto anew = MappedFile::Open(path_);
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_EQ(static_cast<char>((*anew)->data()[kBytes - 1]), 'x');
  EXPECT_TRUE((*anew)->CheckIntact().ok());
}

TEST_F(MappedFileTest, ACutThatNobodyReadBeyondIsDataLossToo) {
  fs::resize_file(path_, 10'000);
  ExpectDataLoss("cut short");
}

TEST_F(MappedFileTest, AFileEmptiedReadsAsZeros) {
  fs::resize_file(path_, 0);
  EXPECT_EQ(std::ranges::count(Content(), '\0'), static_cast<std::ptrdiff_t>(kBytes));
  ExpectDataLoss("cut short");
}

TEST_F(MappedFileTest, AWriteIsDataLoss) {
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << "other";
  // Moves the time of the write forward, in case the file system's clock is too coarse to show it.
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(1));
  ExpectDataLoss("written to");
}

TEST_F(MappedFileTest, AFilePutInItsPlaceChangesNothing) {
  ASSERT_TRUE(WriteFileAtomic(path_, "another").ok());
  EXPECT_EQ(Content(), std::string(kBytes, 'x'));
  EXPECT_TRUE(file_->CheckIntact().ok());
  fs::remove(path_);
  EXPECT_TRUE(file_->CheckIntact().ok());
}

TEST_F(MappedFileTest, ManyThreadsMayFindTheEndAtOnce) {
  fs::resize_file(path_, 0);
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int64_t> zeros{0};
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { zeros += std::ranges::count(Content(), '\0'); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(zeros, 8 * static_cast<int64_t>(kBytes));
}

TEST_F(MappedFileTest, OtherFilesAreNotTouched) {
  const fs::path other_path = dir_.path() / "other";
  ASSERT_TRUE(WriteFileAtomic(other_path, std::string(kBytes, 'y')).ok());
  const auto other = MappedFile::Open(other_path);
  ASSERT_TRUE(other.ok());
  fs::resize_file(path_, 0);
  EXPECT_EQ(Content()[0], '\0');
  EXPECT_TRUE((*other)->CheckIntact().ok());
  EXPECT_EQ(static_cast<char>((*other)->data()[kBytes - 1]), 'y');
}

// A bus error outside all mappings still ends the process.
TEST_F(MappedFileTest, ABusErrorElsewhereIsNotSwallowed) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own handler comes first";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

// Advice changes no byte, for any range.
TEST_F(MappedFileTest, AdviceIsOnlyAdvice) {
  const auto random = MappedFile::Open(path_, MappedFile::Access::kRandom);
  ASSERT_TRUE(random.ok()) << random.status();
  const std::span all((*random)->data(), (*random)->size());
  AdviseWillNeed(all);
  AdviseWillNeed(all.subspan(5'000, 1));
  AdviseWillNeed({});
  EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{'x'}; }));
  fs::resize_file(path_, 0);
  AdviseWillNeed(all);
  EXPECT_EQ((*random)->data()[0], std::byte{0});
}

// A mapping beyond the limit must wait until another one ends. The error is transient, so no work is given up for it.
TEST(MappedFile, OneTooManyIsTransient) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < MappedFile::kMaxMappings + 100) GTEST_SKIP() << "the process may not open so many files";
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "file", "x").ok());
  std::vector<std::unique_ptr<MappedFile>> files;
  absl::Status refused;
  while (refused.ok() && files.size() <= MappedFile::kMaxMappings) {
    auto file = MappedFile::Open(dir.path() / "file");
    refused = file.status();
    if (file.ok()) files.push_back(*std::move(file));
  }
  EXPECT_EQ(files.size(), MappedFile::kMaxMappings);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_TRUE(IsTransient(refused));
  files.pop_back();
  EXPECT_TRUE(MappedFile::Open(dir.path() / "file").ok());
  files.clear();
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(MappedFile, EmptyAndMissingFiles) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "empty", "").ok());
  const auto empty = MappedFile::Open(dir.path() / "empty");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ((*empty)->size(), 0U);
  EXPECT_TRUE((*empty)->CheckIntact().ok());
  EXPECT_FALSE(MappedFile::Open(dir.path()).ok()) << "a directory";
  EXPECT_EQ(MappedFile::Open(dir.path() / "none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace permafrost
