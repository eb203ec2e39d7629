#include "data/disk/disk_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "base/status.h"
#include "data/disk/injecting_reader.h"
#include "temp_dir.h"

#ifdef __linux__
#include "no_io_uring.h"
#endif

namespace permafrost {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// Maps each tag to the answer for it.
using Answers = std::map<uint64_t, absl::StatusOr<Bytes>>;

// Runs all `reads`, with at most `at_once` in flight.
Answers ReadAll(DiskReader& reader, const std::vector<DiskRead>& reads, int at_once) {
  Answers answers;
  size_t next = 0;
  while (answers.size() < reads.size()) {
    while (next < reads.size() && reader.in_flight() < at_once) {
      const absl::Status started = reader.Start(reads[next++]);
      EXPECT_TRUE(started.ok()) << started;
      if (!started.ok()) return answers;
    }
    const absl::Status waited =
        reader.Wait([&](const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
          absl::StatusOr<Bytes> copy(bytes.ok() ? absl::StatusOr<Bytes>(Bytes(bytes->begin(), bytes->end()))
                                                : bytes.status());
          EXPECT_TRUE(answers.emplace(read.tag, std::move(copy)).second) << read.tag << " came twice";
        });
    EXPECT_TRUE(waited.ok()) << waited;
    if (!waited.ok()) return answers;
  }
  EXPECT_EQ(reader.in_flight(), 0);
  return answers;
}

std::vector<DiskRead> RandomReads(uint64_t file_bytes, uint32_t max_pages, size_t count, uint64_t seed) {
  SplitMix64 random(seed, 0);
  const uint64_t pages = (file_bytes + kDiskPageBytes - 1) / kDiskPageBytes;
  std::vector<DiskRead> reads;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t page = random.Below(pages);
    const uint64_t most = std::min<uint64_t>(max_pages, pages - page);
    reads.push_back({.offset = page * kDiskPageBytes,
                     .bytes = static_cast<uint32_t>((1 + random.Below(most)) * kDiskPageBytes),
                     .tag = i});
  }
  return reads;
}

class DiskReaderTest : public testing::TestWithParam<DiskReaderKind> {
 protected:
  // The file ends within a page.
  static constexpr size_t kFileBytes = 300 * kDiskPageBytes + 1234;

  DiskReaderTest() {
    SplitMix64 random(1, 2);
    content_.resize(kFileBytes);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(random.Next());
    std::ofstream(file(), std::ios::binary)
        .write(reinterpret_cast<const char*>(content_.data()), static_cast<std::streamsize>(content_.size()));
  }

  fs::path file() const { return dir_.path() / "content"; }

  void SetUp() override {
    const absl::Status here = DiskReader::Open(file(), {.kind = GetParam()}).status();
    if (absl::IsFailedPrecondition(here)) GTEST_SKIP() << here;
  }

  std::unique_ptr<DiskReader> Open(DiskReader::Options options) {
    options.kind = GetParam();
    absl::StatusOr<std::unique_ptr<DiskReader>> reader = DiskReader::Open(file(), options);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return std::move(reader).value();
  }

  void ExpectContent(const std::vector<DiskRead>& reads, const Answers& answers) {
    ASSERT_EQ(answers.size(), reads.size());
    for (const DiskRead& read : reads) {
      const absl::StatusOr<Bytes>& bytes = answers.at(read.tag);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      ASSERT_EQ(bytes->size(), std::min<uint64_t>(read.bytes, kFileBytes - read.offset));
      ASSERT_EQ(std::memcmp(bytes->data(), content_.data() + read.offset, bytes->size()), 0)
          << read.bytes << " at " << read.offset;
    }
  }

  TempDir dir_;
  Bytes content_;
};

TEST_P(DiskReaderTest, RandomReadsAreTheFilesBytesAtEveryDepth) {
  for (const int depth : {1, 2, 7, 32, 64}) {
    const auto reader = Open({.depth = depth, .max_read_bytes = 16 * kDiskPageBytes});
    EXPECT_EQ(reader->kind(), GetParam());
    EXPECT_EQ(reader->depth(), depth);
    EXPECT_EQ(reader->file_bytes(), kFileBytes);
    const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 500, static_cast<uint64_t>(depth));
    ExpectContent(reads, ReadAll(*reader, reads, depth));
  }
}

TEST_P(DiskReaderTest, ThroughThePageCacheToo) {
  const auto reader = Open({.depth = 8, .direct = false});
  EXPECT_FALSE(reader->direct());
  EXPECT_EQ(reader->fallback(), "") << "it was asked for";
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 200, 3);
  ExpectContent(reads, ReadAll(*reader, reads, 8));
}

TEST_P(DiskReaderTest, WhatIsDoneMayBeFollowedByANewReadAtOnce) {
  const auto reader = Open({.depth = 4});
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 300, 4);
  Answers answers;
  size_t next = 0;
  while (next < 4) ASSERT_TRUE(reader->Start(reads[next++]).ok());
  int full = 0;
  while (reader->in_flight() > 0) {
    ASSERT_TRUE(reader
                    ->Wait([&](const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
                      ASSERT_TRUE(bytes.ok()) << bytes.status();
                      // The buffer still belongs to this read. A new read needs another buffer, and at full depth
                      // none is free.
                      if (reader->in_flight() == 4) {
                        EXPECT_TRUE(absl::IsFailedPrecondition(reader->Start(read)));
                        ++full;
                      }
                      while (next < reads.size() && reader->in_flight() < 4) {
                        ASSERT_TRUE(reader->Start(reads[next++]).ok());
                      }
                      ASSERT_TRUE(reader->Flush().ok());
                      answers.emplace(read.tag, Bytes(bytes->begin(), bytes->end()));
                    })
                    .ok());
    while (next < reads.size() && reader->in_flight() < 4) ASSERT_TRUE(reader->Start(reads[next++]).ok());
  }
  EXPECT_GT(full, 0);
  ExpectContent(reads, answers);
}

TEST_P(DiskReaderTest, WhatIsDoneIsHandedOverAfterOthersWereStarted) {
  const auto reader = Open({.depth = 8});
  ASSERT_EQ(reader->Await().value_or(-1), 0) << "nothing is in flight";
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 300, 5);
  Answers answers;
  size_t next = 0;
  int done = 0;
  while (answers.size() < reads.size()) {
    while (next < reads.size() && reader->in_flight() < 4 + done) ASSERT_TRUE(reader->Start(reads[next++]).ok());
    if (done == 0) {
      const int in_flight = reader->in_flight();
      const absl::StatusOr<int> awaited = reader->Await();
      ASSERT_TRUE(awaited.ok()) << awaited.status();
      EXPECT_GE(*awaited, 1);
      EXPECT_EQ(reader->in_flight(), in_flight) << "nothing was handed over";
      done = *awaited;
      continue;
    }
    const size_t before = answers.size();
    ASSERT_TRUE(reader->Flush().ok());
    ASSERT_TRUE(reader
                    ->Wait([&](const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
                      ASSERT_TRUE(bytes.ok()) << bytes.status();
                      answers.emplace(read.tag, Bytes(bytes->begin(), bytes->end()));
                    })
                    .ok());
    EXPECT_GE(answers.size(), before + static_cast<size_t>(done));
    done = 0;
  }
  ExpectContent(reads, answers);
}

TEST_P(DiskReaderTest, RefusesWhatIsNoReadOfTheFile) {
  const auto reader = Open({.depth = 2, .max_read_bytes = 2 * kDiskPageBytes});
  const struct {
    const char* why;
    DiskRead read;
    const char* says;
  } kCases[] = {
      {"begins within a page", {512, 4096}, "a read of 4096 bytes at 512 is not of whole pages of 4096"},
      {"ends within a page", {0, 100}, "is not of whole pages"},
      {"nothing", {0, 0}, "is not of whole pages"},
      {"too long", {0, 3 * 4096}, "is longer than 8192"},
      {"beyond the end", {301 * kDiskPageBytes, 4096}, "begins beyond the end, 1230034"},
      {"far beyond the end", {uint64_t{1} << 62, 4096}, "begins beyond the end"},
  };
  for (const auto& c : kCases) {
    const absl::Status refused = reader->Start(c.read);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << c.why << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.says)) << c.why;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(file().string())) << c.why;
  }
  EXPECT_EQ(reader->in_flight(), 0);
  ASSERT_TRUE(reader->Start({0, 4096}).ok());
  ASSERT_TRUE(reader->Start({0, 4096}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->Start({0, 4096})));
}

TEST_P(DiskReaderTest, NothingInFlightIsNoWait) {
  const auto reader = Open({});
  EXPECT_TRUE(reader->Wait([](const auto&, const auto&) { FAIL(); }).ok());
}

TEST_P(DiskReaderTest, DestroyedWithReadsInFlight) {
  for (int i = 0; i < 20; ++i) {
    const auto reader = Open({.depth = 64});
    for (const DiskRead& read : RandomReads(kFileBytes, 16, 64, static_cast<uint64_t>(i))) {
      ASSERT_TRUE(reader->Start(read).ok());
    }
    // Some reads are not with the kernel yet, some are, and some are done.
    if (i % 3 > 0) {
      ASSERT_TRUE(reader->Flush().ok());
    }
    if (i % 3 > 1) {
      ASSERT_TRUE(reader->Wait([](const auto&, const auto&) {}).ok());
    }
  }
}

TEST_P(DiskReaderTest, AFileThatWasCutIsDataLoss) {
  const auto reader = Open({.depth = 8});
  for (const uint64_t left : {200 * kDiskPageBytes + 100, 200 * kDiskPageBytes}) {
    fs::resize_file(file(), left);
    const Answers answers = ReadAll(*reader,
                                    {{.offset = 199 * kDiskPageBytes, .bytes = kDiskPageBytes, .tag = 0},
                                     {.offset = 199 * kDiskPageBytes, .bytes = 4 * kDiskPageBytes, .tag = 1},
                                     {.offset = 250 * kDiskPageBytes, .bytes = kDiskPageBytes, .tag = 2},
                                     {.offset = 300 * kDiskPageBytes, .bytes = kDiskPageBytes, .tag = 3}},
                                    8);
    ASSERT_EQ(answers.size(), 4U);
    EXPECT_TRUE(answers.at(0).ok()) << "what is still there is read";
    for (const uint64_t tag : {1U, 2U, 3U}) {
      EXPECT_TRUE(absl::IsDataLoss(answers.at(tag).status())) << tag << answers.at(tag).status();
    }
    EXPECT_THAT(std::string(answers.at(1).status().message()),
                testing::AllOf(HasSubstr(file().string()), HasSubstr(std::to_string(left)),
                               HasSubstr("not 1230034 as when it was opened"), HasSubstr("16384 bytes at 815104")));
  }
}

TEST_P(DiskReaderTest, BytesAppendedLaterAreNotRead) {
  const auto reader = Open({});
  std::ofstream(file(), std::ios::binary | std::ios::app) << std::string(5000, 'x');
  const std::vector<DiskRead> last = {{.offset = 300 * kDiskPageBytes, .bytes = kDiskPageBytes, .tag = 0}};
  ExpectContent(last, ReadAll(*reader, last, 1));
}

TEST_P(DiskReaderTest, ShortAnswersAreGoneOnWith) {
  std::atomic<int> answers = 0;
  const auto reader = Open({.depth = 16, .alter = [&answers](uint64_t, uint32_t, int64_t result) -> int64_t {
                              switch (answers++ % 5) {
                                case 0:
                                  return std::min<int64_t>(result, 5000);  // ends within a page
                                case 1:
                                  return std::min<int64_t>(result, 4096);
                                case 2:
                                  return 0;
                                default:
                                  return result;
                              }
                            }});
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 300, 5);
  ExpectContent(reads, ReadAll(*reader, reads, 16));
  EXPECT_GT(answers, 400);
}

TEST_P(DiskReaderTest, InterruptedReadsAreTriedAgain) {
  std::atomic<int> answers = 0;
  const auto reader = Open({.depth = 16, .alter = [&answers](uint64_t, uint32_t, int64_t result) -> int64_t {
                              const int n = answers++;
                              return n % 3 == 0 ? -EINTR : n % 3 == 1 ? -EAGAIN : result;
                            }});
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 100, 6);
  ExpectContent(reads, ReadAll(*reader, reads, 16));
}

TEST_P(DiskReaderTest, AFaultFailsItsReadAndNoOther) {
  const auto reader = Open({.depth = 16, .alter = [](uint64_t offset, uint32_t bytes, int64_t result) -> int64_t {
                              const bool hit = offset <= 100 * kDiskPageBytes && 100 * kDiskPageBytes < offset + bytes;
                              return hit ? -EIO : result;
                            }});
  const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 400, 7);
  const Answers answers = ReadAll(*reader, reads, 16);
  ASSERT_EQ(answers.size(), reads.size());
  std::vector<DiskRead> sound;
  Answers sound_answers;
  int faults = 0;
  for (const DiskRead& read : reads) {
    if (read.offset <= 100 * kDiskPageBytes && 100 * kDiskPageBytes < read.offset + read.bytes) {
      ++faults;
      const absl::Status status = answers.at(read.tag).status();
      EXPECT_TRUE(IsTransient(status)) << status;
      EXPECT_EQ(status.message(), absl::StrCat(file().string(), ": cannot read ", read.bytes, " bytes at ", read.offset,
                                               ": Input/output error"));
    } else {
      sound.push_back(read);
      sound_answers.emplace(read.tag, answers.at(read.tag));
    }
  }
  EXPECT_GT(faults, 0);
  ExpectContent(sound, sound_answers);
}

TEST_P(DiskReaderTest, WhatNeverComesIsAnErrorAtLast) {
  for (const int64_t answer : {int64_t{0}, int64_t{100}, int64_t{-EAGAIN}}) {
    const auto reader = Open({.alter = [answer](uint64_t, uint32_t, int64_t) { return answer; }});
    const Answers answers = ReadAll(*reader, {{.offset = 0, .bytes = kDiskPageBytes, .tag = 0}}, 1);
    EXPECT_TRUE(IsTransient(answers.at(0).status())) << answers.at(0).status();
  }
}

TEST_P(DiskReaderTest, ManyReadersOfOneFileAtOnce) {
  { const auto reader = Open({}); }
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 12; ++t) {
    threads.emplace_back([this, t] {
      const std::unique_ptr<DiskReader> reader = Open({.depth = 16});
      const std::vector<DiskRead> reads = RandomReads(kFileBytes, 16, 200, 100 + t);
      ExpectContent(reads, ReadAll(*reader, reads, 16));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DiskReaderTest, AnEmptyFileHasNothingToRead) {
  std::ofstream(file(), std::ios::trunc).close();
  const auto reader = Open({});
  EXPECT_EQ(reader->file_bytes(), 0U);
  EXPECT_TRUE(absl::IsInvalidArgument(reader->Start({0, 4096})));
}

// The kernel's attributes in /sys have a length and bytes, but their file system refuses direct reads.
TEST_P(DiskReaderTest, AFileSystemWithoutDirectReadsIsReadThroughTheCache) {
  const fs::path attribute = "/sys/kernel/notes";
  const absl::StatusOr<std::string> whole = ReadFile(attribute);
  if (!whole.ok() || fs::file_size(attribute) != whole->size()) GTEST_SKIP() << attribute << ": is not here";
  absl::StatusOr<std::unique_ptr<DiskReader>> reader = DiskReader::Open(attribute, {.kind = GetParam()});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_FALSE((*reader)->direct());
  EXPECT_THAT((*reader)->fallback(), HasSubstr("refuses direct reads"));
  const Answers answers = ReadAll(**reader, {{.offset = 0, .bytes = kDiskPageBytes, .tag = 0}}, 1);
  ASSERT_TRUE(answers.at(0).ok()) << answers.at(0).status();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(answers.at(0)->data()), answers.at(0)->size()),
            whole->substr(0, kDiskPageBytes));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DiskReaderTest, testing::Values(DiskReaderKind::kUring, DiskReaderKind::kPread),
                         [](const auto& of) { return std::string(kDiskReaderKindNames.Name(of.param)); });

TEST(DiskReaderOpen, TheFirstChoiceNeedsNoExcuse) {
  const TempDir dir;
  std::ofstream(dir.path() / "file") << std::string(10000, 'x');
  const auto reader = DiskReader::Open(dir.path() / "file", {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  const bool first = (*reader)->kind() == DiskReaderKind::kUring && (*reader)->direct();
  EXPECT_EQ((*reader)->fallback().empty(), first) << (*reader)->fallback();
}

TEST(DiskReaderOpen, BadOptionsAndFiles) {
  const TempDir dir;
  std::ofstream(dir.path() / "file") << "x";
  const struct {
    DiskReader::Options options;
    const char* says;
  } kCases[] = {
      {{.depth = 0}, "depth: 0 is outside 1..1024"},
      {{.depth = 1025}, "depth: 1025 is outside"},
      {{.max_read_bytes = 0}, "max_read_bytes: 0 is no multiple of 4096"},
      {{.max_read_bytes = 5000}, "max_read_bytes: 5000 is no multiple"},
      {{.depth = 1024, .max_read_bytes = 16 << 20}, "depth: 1024 reads of 16777216 bytes need more than"},
  };
  for (const auto& c : kCases) {
    const absl::Status refused = DiskReader::Open(dir.path() / "file", c.options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.says));
  }
  EXPECT_TRUE(absl::IsNotFound(DiskReader::Open(dir.path() / "none", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(DiskReader::Open(dir.path(), {}).status()));
}

#ifdef __linux__
// The test runs on a new thread, because the seccomp filter lasts until the thread ends.
TEST(DiskReaderOpen, WhereIoUringIsForbiddenThreadsReadAndSayWhy) {
  const TempDir dir;
  const std::string content(100000, 'y');
  std::ofstream(dir.path() / "file") << content;
  bool skipped = false;
  std::thread confined([&] {
    if (!ForbidIoUring()) {
      skipped = true;
      return;
    }
    const auto reader = DiskReader::Open(dir.path() / "file", {});
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->kind(), DiskReaderKind::kPread);
    EXPECT_THAT((*reader)->fallback(), HasSubstr("io_uring cannot be used ("));
    EXPECT_THAT((*reader)->fallback(), HasSubstr("): threads read by pread"));
    const Answers answers = ReadAll(**reader, {{.offset = 4096, .bytes = 8192, .tag = 7}}, 1);
    ASSERT_TRUE(answers.at(7).ok()) << answers.at(7).status();
    EXPECT_EQ(answers.at(7)->size(), 8192U);
    EXPECT_EQ(answers.at(7)->front(), std::byte{'y'});

    const absl::Status asked = DiskReader::Open(dir.path() / "file", {.kind = DiskReaderKind::kUring}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(asked)) << asked;
    EXPECT_THAT(std::string(asked.message()), HasSubstr("io_uring cannot be used ("));
  });
  confined.join();
  if (skipped) GTEST_SKIP() << "this system lets no process confine itself";
}
#endif

// The tests of other rooms rely on this.
TEST(InjectingReader, FailsAltersAndReorders) {
  const TempDir dir;
  std::ofstream(dir.path() / "file") << std::string(100 * kDiskPageBytes, 'z');
  auto inner = DiskReader::Open(dir.path() / "file", {.depth = 8});
  ASSERT_TRUE(inner.ok()) << inner.status();
  InjectingReader reader(
      *std::move(inner),
      {.fail = [](const DiskRead& read) { return read.tag == 3 ? absl::InternalError("planted") : absl::OkStatus(); },
       .alter =
           [](const DiskRead& read, Bytes& bytes) {
             if (read.tag == 4) bytes.front() ^= std::byte{1};
           },
       .reorder_seed = 1});
  std::vector<DiskRead> reads;
  for (uint64_t i = 0; i < 100; ++i) reads.push_back({i * kDiskPageBytes, kDiskPageBytes, i});
  const Answers answers = ReadAll(reader, reads, 8);
  ASSERT_EQ(answers.size(), 100U);
  EXPECT_EQ(answers.at(3).status(), absl::InternalError("planted"));
  EXPECT_NE(answers.at(4)->front(), std::byte{'z'});
  EXPECT_EQ(answers.at(5)->front(), std::byte{'z'});
}

}  // namespace
}  // namespace permafrost
