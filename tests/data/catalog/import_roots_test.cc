#include "data/catalog/imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/source/failing_disk.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ImportRootsTest : public ::testing::Test {
 protected:
  ImportRootsTest() { fs::create_directories(root_ / "set" / "raw"); }
  absl::Status Check(const fs::path& source) const {
    const auto resolved = ResolveSource(source, roots_);
    return resolved.ok() ? CheckEntriesInRoots(*resolved, roots_) : resolved.status();
  }

  TempDir temp_;
  const fs::path root_ = temp_.path() / "root";
  const std::vector<fs::path> roots_ = {root_};
};

TEST_F(ImportRootsTest, AFolderThatCannotBeListedJustNowIsNotForbidden) {
  EXPECT_TRUE(Check(root_ / "set").ok());
  const NoDescriptors none;
  const absl::Status status = Check(root_ / "set");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(IsTransient(status));
}

// A file that is open is refused only where no root can hold it.
TEST_F(ImportRootsTest, WhatLiesBelowNoRootThatCanBeResolvedIsNotRefusedYet) {
  EXPECT_TRUE(CheckInRoots(root_ / "set" / "raw" / "edge.csv", roots_).ok());
  const absl::Status refused = CheckInRoots(temp_.path() / "edge.csv", roots_);
  EXPECT_EQ(refused, absl::PermissionDeniedError("leads to outside the import roots"));
  for (const int error : {EIO, EMFILE, ENOMEM}) {
    absl::Status status;
    const bool failing = WithoutStat(error, [&] { status = CheckInRoots(root_ / "set" / "raw" / "edge.csv", roots_); });
    if (!failing) GTEST_SKIP() << "no call can be made to fail here";
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/root: cannot resolve: ")) << error;
  }
}

TEST_F(ImportRootsTest, APathThatCanNeverBeFollowedIsTheCallersError) {
  fs::create_symlink("circle", root_ / "circle");
  fs::create_directories(root_ / "linked" / "raw");
  fs::create_symlink("edge.csv", root_ / "linked" / "raw" / "edge.csv");
  const struct {
    const char* why;
    fs::path source;
    const char* want;
  } kCases[] = {
      {"a circle of links", root_ / "circle", "/circle: cannot resolve: Too many levels of symbolic links"},
      {"one in it", root_ / "linked", "/linked/raw/edge.csv: cannot look at: Too many levels of symbolic links"},
      {"a long name", root_ / std::string(300, 'a'), ": cannot resolve: File name too long"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Check(c.source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << status;
    EXPECT_FALSE(IsTransient(status)) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::data
