#include "client/received_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

namespace fs = std::filesystem;

class ReceivedFileTest : public testing::Test {
 protected:
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
  auto file = ReceivedFile::Create(path_);
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
      auto file = ReceivedFile::Create(path_);
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

TEST_F(ReceivedFileTest, NamesADirectoryThatIsNotThere) {
  const auto file = ReceivedFile::Create((directory_.path() / "no" / "w").string());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("No such file or directory"), absl::string_view::npos) << file.status();
}

}  // namespace
}  // namespace permafrost::client
