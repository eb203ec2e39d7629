#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  return names;
}

// The thread that answers HTTP has a small stack, and it reads a file at each scrape of the metrics.
TEST(File, IsReadByAThreadOfASmallStack) {
  pthread_attr_t small;
  ASSERT_EQ(pthread_attr_init(&small), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&small, std::max<size_t>(PTHREAD_STACK_MIN, size_t{64} << 10)), 0);
  const auto read = [](void* text) -> void* {
    *static_cast<std::string*>(text) = ReadFile("/proc/self/comm").value_or("none");
    return nullptr;
  };
  std::string text;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &small, read, &text), 0);
  pthread_join(thread, nullptr);
  EXPECT_NE(text, "");
  EXPECT_EQ(pthread_attr_destroy(&small), 0);
}

TEST(File, AtomicWriteReplacesALinkAndLeavesWhatItLeadsTo) {
  TempDir temp, elsewhere;
  const fs::path file = elsewhere.path() / "file", free = elsewhere.path() / "free", pipe = elsewhere.path() / "pipe";
  ASSERT_TRUE(WriteFileSynced(file, "of somebody else").ok());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& target : {file, free, pipe, fs::path("link")}) {
    const fs::path link = temp.path() / "link";
    fs::remove(link);
    fs::create_symlink(target, link);
    EXPECT_EQ(WriteFileAtomic(link, "mine"), absl::OkStatus()) << target;
    EXPECT_FALSE(fs::is_symlink(link)) << target;
    EXPECT_EQ(*ReadFile(link), "mine") << target;
  }
  EXPECT_EQ(*ReadFile(file), "of somebody else");
  EXPECT_FALSE(fs::exists(free));
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_THAT(Names(temp.path()), ElementsAre("link"));
}

TEST(File, WhatALinkLeadsToIsReplacedWhereThatIsAskedFor) {
  TempDir temp, elsewhere;
  const fs::path link = temp.path() / "link", second = temp.path() / "second", file = elsewhere.path() / "file";
  fs::create_symlink(file, second);
  fs::create_symlink("second", link);
  for (const char* content : {"first", "again"}) {
    const auto target = FileToReplace(link);
    ASSERT_TRUE(target.ok()) << target.status();
    ASSERT_EQ(WriteFileAtomic(*target, content), absl::OkStatus());
    EXPECT_EQ(*ReadFile(file), content);
    EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(second));
  }
  fs::create_symlink("loop", temp.path() / "loop");
  EXPECT_THAT(std::string(FileToReplace(temp.path() / "loop").status().message()), HasSubstr("Too many levels"));
}

TEST(File, WhatIsNoFileIsNeverReplaced) {
  TempDir temp;
  const fs::path pipe = temp.path() / "pipe", link = temp.path() / "link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, link);
  const struct {
    fs::path path;
    absl::Status status;
  } kCases[] = {
      {pipe, WriteFileAtomic(pipe, "x")}, {pipe, FileToReplace(pipe).status()}, {link, FileToReplace(link).status()}};
  for (const auto& c : kCases) {
    EXPECT_EQ(c.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(c.status.message(), c.path.string() + ": is a pipe; a file, or a name that is free, is accepted");
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
  for (const absl::Status& status : {WriteFileAtomic(temp.path(), "x"), FileToReplace(temp.path()).status()}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("is a directory"));
  }
  EXPECT_EQ(Names(temp.path()).size(), 2u);
}

TEST(File, AtomicWriteReplacesWholeAndLeavesNothingElse) {
  TempDir temp;
  const fs::path path = temp.path() / "a";
  const std::string big(300000, 'x');
  ASSERT_TRUE(WriteFileAtomic(path, big).ok());
  EXPECT_EQ(*ReadFile(path), big);
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_EQ(*ReadFile(path), "");
  EXPECT_THAT(Names(temp.path()), ElementsAre("a"));
}

TEST(File, AReadFileTakesNoMoreMemoryThanItHasBytes) {
  TempDir temp;
  const fs::path path = temp.path() / "a";
  // Slightly more than a buffer of doubled size would hold.
  const std::string content((std::size_t{1} << 22) + 1, 'x');
  ASSERT_TRUE(WriteFileSynced(path, content).ok());
  const auto read = ReadFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == content);
  EXPECT_LT(read->capacity(), content.size() + 4096);
}

TEST(File, WhatHasNotTheSizeThatItIsSaidToHaveIsReadWhole) {
  TempDir temp;
  const fs::path pipe = temp.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string content(300'000, 'x');
  std::thread writer([&] { std::ofstream(pipe) << content; });
  const auto read = ReadFile(pipe);
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == content);
#ifdef __linux__
  EXPECT_EQ(fs::file_size("/proc/self/status"), 0U) << "else it is no such file";
  EXPECT_THAT(*ReadFile("/proc/self/status"), HasSubstr("Name:"));
  // The reported size of this file is a page, but its content is shorter.
  if (const fs::path page = "/sys/devices/system/cpu/online"; fs::exists(page)) {
    const auto cores = ReadFile(page);
    ASSERT_TRUE(cores.ok()) << cores.status();
    EXPECT_TRUE(cores->ends_with('\n')) << *cores;
  }
#endif
}

TEST(File, FailedAtomicWriteLeavesNothing) {
  TempDir temp;
  fs::create_directories(temp.path() / "a" / "full");  // a file cannot replace a directory
  EXPECT_FALSE(WriteFileAtomic(temp.path() / "a", "x").ok());
  EXPECT_THAT(Names(temp.path()), ElementsAre("a"));
}

TEST(File, ErrorsNameThePathAndTheReason) {
  TempDir temp;
  const fs::path missing = temp.path() / "missing" / "file";
  for (const absl::Status& status :
       {ReadFile(missing).status(), WriteFileAtomic(missing, "x"), WriteFileSynced(missing, "x"),
        SyncDirectory(missing), MappedFile::Open(missing).status(), FileLock::Acquire(missing).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(missing.string()));
    EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  }
  EXPECT_TRUE(RemoveAll(missing).ok());
}

TEST(File, AnErrorSaysWhetherTheMachineIsAtFault) {
  using absl::StatusCode;
  const struct {
    const char* why;
    int error;
    StatusCode code;
    bool transient;
  } kCases[] = {
      {"not there: a fact", ENOENT, StatusCode::kNotFound, false},
      {"disk full", ENOSPC, StatusCode::kResourceExhausted, true},
      {"quota", EDQUOT, StatusCode::kResourceExhausted, true},
      {"descriptors of the process", EMFILE, StatusCode::kResourceExhausted, true},
      {"descriptors of the system", ENFILE, StatusCode::kResourceExhausted, true},
      {"memory", ENOMEM, StatusCode::kResourceExhausted, true},
      {"a disk that fails", EIO, StatusCode::kInternal, true},
      {"no right to it", EACCES, StatusCode::kPermissionDenied, true},
      {"mounted read-only", EROFS, StatusCode::kPermissionDenied, true},
  };
  for (const auto& c : kCases) {
    const absl::Status status = SystemError(c.error, "/a/b", "open");
    EXPECT_EQ(status.code(), c.code) << c.why;
    EXPECT_EQ(IsTransient(status), c.transient) << c.why;
  }
}

TEST(File, ADirectoryThatCannotBeListedIsNotAnEmptyOne) {
  TempDir temp;
  fs::create_directories(temp.path() / "a" / "b");
  EXPECT_THAT(**ListDirectory(temp.path() / "a"), ElementsAre("b"));
  EXPECT_FALSE((*ListDirectory(temp.path() / "none")).has_value());
  const NoDescriptors exhausted;
  const absl::Status status = ListDirectory(temp.path() / "a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(IsTransient(status));
}

TEST(File, DirectoriesAreMadeWithAllAboveThemOrNotAtAll) {
  TempDir temp;
  const fs::path deep = temp.path() / "a" / "b" / "c";
  EXPECT_TRUE(CreateDirectories(deep).ok());
  EXPECT_TRUE(CreateDirectories(temp.path() / "a" / "d" / "").ok()) << "a slash at the end";
  EXPECT_TRUE(fs::is_directory(deep) && fs::is_directory(temp.path() / "a" / "d"));
  ASSERT_TRUE(WriteFileSynced(temp.path() / "file", "").ok());
  EXPECT_FALSE(CreateDirectories(temp.path() / "file").ok());
  EXPECT_FALSE(CreateDirectories(temp.path() / "file" / "below").ok());
  EXPECT_FALSE(CreateDirectories("").ok());
  const NoDescriptors exhausted;
  EXPECT_TRUE(CreateDirectories(deep).ok()) << "nothing to make";
  // With no descriptors, the parent directories cannot be synced to disk.
  const absl::Status status = CreateDirectories(temp.path() / "e" / "f");
  EXPECT_TRUE(IsTransient(status)) << status;
  EXPECT_FALSE(fs::exists(temp.path() / "e")) << "the next try makes it again";
}

TEST(File, PublishMovesADirectoryAndNeverReplaces) {
  TempDir temp;
  const fs::path from = temp.path() / "from", to = temp.path() / "to";
  ASSERT_TRUE(CreateDirectories(from).ok());
  ASSERT_TRUE(WriteFileSynced(from / "f", "1").ok());
  fs::create_directory(to);
  EXPECT_FALSE(PublishDirectory(from, to).ok()) << "rename alone would replace an empty directory";
  EXPECT_TRUE(fs::exists(from / "f"));
  fs::remove(to);
  ASSERT_TRUE(PublishDirectory(from, to).ok());
  EXPECT_EQ(*ReadFile(to / "f"), "1");
  EXPECT_FALSE(fs::exists(from));
  ASSERT_TRUE(RemoveAll(to).ok());
  EXPECT_FALSE(fs::exists(to));
}

TEST(FileWriter, LargePiecesSkipsAndLaterWritesAllLandInPlace) {
  TempDir temp;
  const fs::path path = temp.path() / "f";
  // `large` spans several write buffers. `whole` ends exactly at the end of one.
  std::string large;
  large.resize(9'000'003);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31);
  auto file = FileWriter::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Skip(100).ok());
  ASSERT_TRUE(file->Append("abc", 3).ok());
  ASSERT_TRUE(file->Append(large.data(), large.size()).ok());
  ASSERT_TRUE(file->PutAt(10, "head", 4).ok());
  ASSERT_TRUE(file->PutAt(101, "B", 1).ok());
  const std::string whole((std::size_t{1} << 24) - file->size(), 'w');
  ASSERT_TRUE(file->Append(whole.data(), whole.size()).ok());
  ASSERT_TRUE(file->Append(large.data(), large.size()).ok());
  ASSERT_TRUE(file->Append("end", 3).ok());
  ASSERT_TRUE(file->Skip(5).ok());
  EXPECT_EQ(file->size(), (std::size_t{1} << 24) + large.size() + 3 + 5);
  ASSERT_TRUE(file->SyncAndClose().ok());
  std::string expected(100, '\0');
  expected.replace(10, 4, "head");
  expected += "aBc" + large + whole + large + "end" + std::string(5, '\0');
  EXPECT_TRUE(*ReadFile(path) == expected);
}

TEST(FileLock, SecondHolderLearnsTheFirst) {
  TempDir temp;
  const fs::path path = temp.path() / "lock";
  {
    auto first = FileLock::Acquire(path);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = FileLock::Acquire(path);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(path.string()));
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("process " + std::to_string(getpid())));
    const FileLock moved = *std::move(first);
    EXPECT_FALSE(FileLock::Acquire(path).ok()) << "a moved lock is still held";
  }
  EXPECT_TRUE(FileLock::Acquire(path).ok());
}

TEST(FileLock, DiesWithItsProcess) {
  TempDir temp;
  const fs::path path = temp.path() / "lock";
  const pid_t child = fork();
  if (child == 0) _exit(FileLock::Acquire(path).ok() ? 0 : 1);
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  ASSERT_EQ(result, 0);
  EXPECT_TRUE(FileLock::Acquire(path).ok());
}

}  // namespace
}  // namespace permafrost
