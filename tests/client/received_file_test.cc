#include "client/received_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "gtest/gtest.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

namespace fs = std::filesystem;

class ReceivedFileTest : public testing::Test {
 protected:
  static absl::StatusOr<ReceivedFile> Create(const std::string& path) {
    auto target = OutputTarget::Open(path);
    return target.ok() ? ReceivedFile::Create(*std::move(target)) : target.status();
  }
  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  size_t FilesHere() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()));
  }

  TempDir directory_;
  const std::string path_ = (directory_.path() / "w.safetensors").string();
};

TEST_F(ReceivedFileTest, AppearsWhole) {
  auto file = Create(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append("hello ").ok());
  ASSERT_TRUE(file->Append("world").ok());
  EXPECT_FALSE(fs::exists(path_)) << "not before it is verified";
  EXPECT_EQ(file->Commit(11, HashHex(Hash64("hello world"))), absl::OkStatus());
  EXPECT_EQ(Content(), "hello world");
  EXPECT_EQ(FilesHere(), 1u);
}

TEST_F(ReceivedFileTest, WhatDoesNotAddUpLeavesTheOldFile) {
  const std::string good = HashHex(Hash64("new"));
  const struct {
    const char* why;
    int64_t total;
    std::string xxh3;
  } kCases[] = {
      {"a byte is missing", 4, good},
      {"a byte too many", 2, good},
      {"another checksum", 3, HashHex(Hash64("old"))},
      {"a stream that ended before its last piece names none", 3, ""},
  };
  std::ofstream(path_) << "old";
  for (const auto& c : kCases) {
    {
      auto file = Create(path_);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE(file->Append("new").ok());
      const absl::Status status = file->Commit(c.total, c.xxh3);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.why;
      EXPECT_NE(status.message().find(path_), absl::string_view::npos) << c.why;
    }
    EXPECT_EQ(Content(), "old") << c.why;
    EXPECT_EQ(FilesHere(), 1u) << c.why;
  }
}

TEST_F(ReceivedFileTest, ASymbolicLinkStaysOne) {
  const std::string link = (directory_.path() / "link").string();
  fs::create_symlink("w.safetensors", link);
  for (const std::string content : {"first", "second"}) {
    auto file = Create(link);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append(content).ok());
    EXPECT_EQ(file->Commit(std::ssize(content), HashHex(Hash64(content))), absl::OkStatus());
    EXPECT_EQ(Content(), content);
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(FilesHere(), 2u);
  }
}

TEST_F(ReceivedFileTest, APipeGetsAllOfItOrNothing) {
  const std::string pipe = (directory_.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* sent : {"hello", "hullo"}) {
    std::string read;
    std::thread reader([&] {
      std::ostringstream text;
      text << std::ifstream(pipe).rdbuf();
      read = text.str();
    });
    {
      auto file = Create(pipe);
      if (!file.ok()) {
        std::ofstream{pipe}.close();  // otherwise the reader would wait for ever
        reader.join();
        FAIL() << file.status();
      }
      EXPECT_TRUE(file->Append(sent).ok());
      const absl::Status status = file->Commit(5, HashHex(Hash64("hello")));
      EXPECT_EQ(status.ok(), sent == std::string("hello")) << status;
    }
    reader.join();
    EXPECT_EQ(read, sent == std::string("hello") ? "hello" : "");
    EXPECT_TRUE(fs::is_fifo(pipe));
    EXPECT_EQ(FilesHere(), 1u);
  }
}

TEST_F(ReceivedFileTest, NamesADirectoryThatIsNotThere) {
  const auto file = Create((directory_.path() / "no" / "w").string());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("No such file or directory"), absl::string_view::npos) << file.status();
  EXPECT_NE(Create(directory_.path().string()).status().message().find("is a directory"), absl::string_view::npos);
}

}  // namespace
}  // namespace permafrost::client
