#include "base/resources.h"

#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <fstream>
#include <thread>

#include "temp_dir.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

class CgroupCoresTest : public testing::Test {
 protected:
  void Write(const fs::path& file, const char* text) {
    fs::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text;
  }
  fs::path root() const { return dir_.path(); }

 private:
  TempDir dir_;
};

TEST_F(CgroupCoresTest, TheLeastQuotaRoundedUp) {
  Write("a/b/cpu.max", "max 100000\n");
  Write("a/cpu.max", "400000 100000\n");
  EXPECT_EQ(CgroupCores("0::/a/b\n", root()), 4) << "set on the parent";
  Write("a/b/cpu.max", "150000 100000\n");
  EXPECT_EQ(CgroupCores("0::/a/b\n", root()), 2) << "one and a half";
  Write("a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(CgroupCores("0::/a/b\n", root()), 1);
}

TEST_F(CgroupCoresTest, VersionOne) {
  Write("cpu/a/cpu.cfs_quota_us", "300000\n");
  Write("cpu/a/cpu.cfs_period_us", "100000\n");
  Write("cpu/cpu.cfs_quota_us", "-1\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCores("5:memory:/x\n4:cpu,cpuacct:/a\n", root()), 3);
  EXPECT_EQ(CgroupCores("4:cpuset:/a\n", root()), std::nullopt) << "another controller";
  EXPECT_EQ(CgroupCores("4:cpu:/\n", root()), std::nullopt) << "-1 means none";
}

TEST_F(CgroupCoresTest, NoQuota) {
  Write("broken/cpu.max", "100000\n");
  for (const char* text : {"", "0::/\n", "0::/none\n", "0::/broken\n", "nonsense", "0:", "1:memory:/a\n"}) {
    EXPECT_EQ(CgroupCores(text, root()), std::nullopt) << text;
  }
}

#ifdef __linux__
TEST(Cores, HonoursTheAffinity) {
  const int before = AvailableCores();
  EXPECT_GE(before, 1);
  int one = 0;
  std::thread([&one] {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    one = AvailableCores();
  }).join();
  EXPECT_EQ(one, 1);
  EXPECT_EQ(AvailableCores(), before) << "another thread's";
}
#endif

}  // namespace
}  // namespace permafrost
