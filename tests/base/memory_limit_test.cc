#include "base/resources.h"

#include <gtest/gtest.h>

#include <fstream>

#include "temp_dir.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

class CgroupLimitTest : public testing::Test {
 protected:
  void Write(const fs::path& file, const char* text) {
    fs::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text;
  }
  fs::path root() const { return dir_.path(); }

 private:
  TempDir dir_;
};

TEST_F(CgroupLimitTest, TheLeastOfTheGroupAndItsParents) {
  Write("a/b/memory.max", "max\n");
  Write("a/memory.max", "1048576\n");
  EXPECT_EQ(CgroupLimit("0::/a/b\n", root()), 1048576U) << "set on the parent";
  Write("a/b/memory.max", "4096\n");
  EXPECT_EQ(CgroupLimit("0::/a/b\n", root()), 4096U) << "the group's own is less";
  EXPECT_EQ(CgroupLimit("0::/a\n", root()), 1048576U);
}

TEST_F(CgroupLimitTest, VersionOne) {
  Write("memory/a/memory.limit_in_bytes", "65536\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(CgroupLimit("5:cpu:/x\n4:hugetlb,memory:/a\n", root()), 65536U);
  EXPECT_EQ(CgroupLimit("4:memory:/\n", root()), std::nullopt) << "its largest number means none";
}

TEST_F(CgroupLimitTest, NoLimit) {
  for (const char* text : {"", "0::/\n", "0::/none\n", "nonsense", "0:", "1:cpu:/a\n"}) {
    EXPECT_EQ(CgroupLimit(text, root()), std::nullopt) << text;
  }
}

TEST(MemoryLimit, IsThere) { EXPECT_GT(MemoryLimit(), uint64_t{1} << 20); }

}  // namespace
}  // namespace permafrost
