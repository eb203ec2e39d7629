// Tests the files of initial weights before a job uses them.
#include "jobs/job_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/status.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

std::string Refusal(const std::filesystem::path& path) {
  const auto read = ReadWeightsFile(path, "mine/weights");
  EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
  return std::string(read.status().message());
}

TEST(InitialWeightsTest, AFileIsReadWholeIfItBeginsAsSafetensorsDo) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "w";
  const std::string good = "\x02\0\0\0\0\0\0\0{}and the rest"s;
  ASSERT_TRUE(WriteFileAtomic(path, good).ok());
  const auto read = ReadWeightsFile(path, "mine/weights");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, good);
  const std::string others[] = {
      "", "short", "\x93NUMPY\x01\0v\0{'descr': '<f4'}"s,
      "\x10\0\0\0\0\0\0\0{}"s,              // a header that extends beyond the end of the file
      "\xff\xff\xff\xff\xff\xff\xff\xff{}"  // a header of 2^64 - 1 bytes
  };
  for (const std::string& other : others) {
    ASSERT_TRUE(WriteFileAtomic(path, other).ok());
    EXPECT_THAT(Refusal(path),
                HasSubstr("spec.init_from.file: 'mine/weights' does not begin as a safetensors file does"));
  }
  EXPECT_TRUE(absl::IsNotFound(ReadWeightsFile(dir.path() / "none", "none").status()));
}

TEST(InitialWeightsTest, AFileThatMemoryHasNoRoomForIsNotRead) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "w";
  ASSERT_TRUE(WriteFileAtomic(path, "\x02\0\0\0\0\0\0\0{}"s).ok());
  // The rest of the file is a hole, which takes no disk space.
  std::filesystem::resize_file(path, MemoryLimit() + (uint64_t{64} << 20));
  const absl::Status refused = ReadWeightsFile(path, "mine/weights").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("spec.init_from.file: 'mine/weights' has "), HasSubstr("its limit is ")));
}

}  // namespace
}  // namespace permafrost::jobs
