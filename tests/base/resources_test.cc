#include "base/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

// Writes files of a cgroup tree.
class CgroupTest : public testing::Test {
 protected:
  void Write(const fs::path& file, const char* text) {
    fs::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text;
  }
  fs::path root() const { return dir_.path(); }

 private:
  TempDir dir_;
};

class CgroupCoresTest : public CgroupTest {};

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

constexpr char kMeminfo[] =
    "MemTotal:        1000000 kB\nMemFree:           10000 kB\nMemAvailable:     400000 kB\nBuffers:  1 kB\n";
constexpr MemoryLeft kMachine{.limit = 1024000000, .used = 614400000, .left = 409600000};

class MemoryLeftTest : public CgroupTest {};

TEST_F(MemoryLeftTest, OfTheMachineWhereNoGroupHasALimit) {
  EXPECT_EQ(MemoryLeftOf("", root(), kMeminfo), kMachine);
  Write("a/memory.max", "max\n");
  Write("a/memory.current", "5000\n");
  EXPECT_EQ(MemoryLeftOf("0::/a\n", root(), kMeminfo), kMachine);
  EXPECT_EQ(MemoryLeftOf("0::/none\nnonsense\n", root(), kMeminfo), kMachine);
  EXPECT_EQ(MemoryLeftOf("", root(), std::string(kMeminfo) + "Mapped: 100000 kB\n"),
            (MemoryLeft{1024000000, 716800000, 307200000, 102400000}))
      << "programs and libraries are to stay";
  EXPECT_EQ(MemoryLeftOf("", root(), ""), std::nullopt);
  EXPECT_EQ(MemoryLeftOf("", root(), "MemTotal: 10 kB\n"), std::nullopt);
}

TEST_F(MemoryLeftTest, PagesOfFilesThatAreCleanAreNotUsed) {
  Write("a/memory.max", "100000\n");
  Write("a/memory.current", "90000\n");
  EXPECT_EQ(MemoryLeftOf("0::/a\n", root(), kMeminfo), (MemoryLeft{100000, 90000, 10000})) << "nothing is known of it";
  Write("a/memory.stat",
        "anon 20000\nfile 60000\nfile_dirty 4000\nfile_writeback 1000\ninactive_file 40000\nactive_file 15000\n"
        "file_mapped 6000\nslab_reclaimable 3000\nslab 7000\n");
  // 40,000 + 15,000 - 5,000 - 6,000 + 3,000 bytes can be reclaimed.
  EXPECT_EQ(MemoryLeftOf("0::/a\n", root(), kMeminfo), (MemoryLeft{100000, 43000, 57000, 6000}));
}

TEST_F(MemoryLeftTest, TheLeastOfTheGroupAndItsParents) {
  Write("a/memory.max", "100000\n");
  Write("a/memory.current", "95000\n");
  Write("a/b/memory.max", "80000\n");
  Write("a/b/memory.current", "20000\n");
  EXPECT_EQ(MemoryLeftOf("0::/a/b\n", root(), kMeminfo), (MemoryLeft{100000, 95000, 5000})) << "neighbours fill a";
  Write("a/memory.current", "21000\n");
  EXPECT_EQ(MemoryLeftOf("0::/a/b\n", root(), kMeminfo), (MemoryLeft{80000, 20000, 60000}));
  EXPECT_EQ(MemoryLeftOf("0::/a/b\n", root(), ""), (MemoryLeft{80000, 20000, 60000})) << "the machine does not tell";
}

TEST_F(MemoryLeftTest, MoreUsedThanTheLimitLeavesNothing) {
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "5000\n");
  EXPECT_EQ(MemoryLeftOf("0::/a\n", root(), kMeminfo), (MemoryLeft{1000, 5000, 0}));
}

TEST_F(MemoryLeftTest, VersionOne) {
  Write("memory/a/memory.limit_in_bytes", "100000\n");
  Write("memory/a/memory.usage_in_bytes", "90000\n");
  Write("memory/a/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 30000\ntotal_active_file 20000\ntotal_dirty 1000\n"
        "total_writeback 500\nmapped_file 1\ntotal_mapped_file 2500\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/memory.usage_in_bytes", "900000\n");
  EXPECT_EQ(MemoryLeftOf("5:cpu:/x\n4:hugetlb,memory:/a\n", root(), kMeminfo),
            (MemoryLeft{100000, 44000, 56000, 2500}));
  EXPECT_EQ(MemoryLeftOf("4:memory:/\n", root(), kMeminfo), kMachine);
}

TEST_F(MemoryLeftTest, PressureOfVersionTwo) {
  constexpr char kMachinePressure[] =
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
  EXPECT_EQ(MemoryPressureOf("0::/a/b\n", root(), kMachinePressure), (MemoryPressure{0, 77}));
  Write("a/memory.events", "low 1\nhigh 2\nmax 30\noom 4\noom_kill 5\n");
  Write("a/b/memory.events", "low 0\nhigh 100\nmax 0\n");
  EXPECT_EQ(MemoryPressureOf("0::/a/b\n", root(), kMachinePressure), (MemoryPressure{132, 77}));
  Write("a/memory.events.local", "high 1\nmax 1\n");
  EXPECT_EQ(MemoryPressureOf("0::/a/b\n", root(), kMachinePressure), (MemoryPressure{102, 77}))
      << "what happened in b is not counted again in a";
  Write("a/memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=900\nfull avg10=0 total=800\n");
  EXPECT_EQ(MemoryPressureOf("0::/a/b\n", root(), kMachinePressure), (MemoryPressure{102, 900}));
  Write("a/b/memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=90\nfull avg10=0 total=80\n");
  EXPECT_EQ(MemoryPressureOf("0::/a/b\n", root(), kMachinePressure), (MemoryPressure{102, 90}));
}

TEST_F(MemoryLeftTest, PressureOfVersionOne) {
  Write("memory/a/memory.failcnt", "12\n");
  Write("memory/memory.failcnt", "3\n");
  EXPECT_EQ(MemoryPressureOf("4:memory:/a\n", root(), ""), (MemoryPressure{15, 0}));
}

TEST(MemoryLeft, OfThisMachine) {
  const std::optional<MemoryLeft> left = GetMemoryLeft();
  ASSERT_TRUE(left.has_value());
  EXPECT_GT(left->limit, uint64_t{1} << 20);
  EXPECT_GT(left->left, 0U);
  EXPECT_LE(left->left, left->limit);
  const MemoryPressure before = GetMemoryPressure(), after = GetMemoryPressure();
  EXPECT_LE(before.limit_hits, after.limit_hits);
  EXPECT_LE(before.stalled_micros, after.stalled_micros);
}

TEST(MappedBytes, AreThoseOfAllTheFilesMappings) {
  constexpr std::string_view kSmaps =
      "7f10-7f20 r--s 00000000 08:01 12                 /data/graph.pfg\n"
      "Size:               400 kB\nRss:                 100 kB\nPss:                  50 kB\n"
      "7f20-7f30 r--s 00064000 08:01 13                 /data/other graph.pfg\nRss:                 900 kB\n"
      "7f30-7f40 r--s 00065000 08:01 12                 /data/graph.pfg\nRss:                  24 kB\n"
      "7f40-7f50 rw-p 00000000 00:00 0 \nRss:                 700 kB\n";
  EXPECT_EQ(MappedBytesIn(kSmaps, "/data/graph.pfg"), 124u * 1024);
  EXPECT_EQ(MappedBytesIn(kSmaps, "/data/none"), 0u);
  EXPECT_EQ(MappedBytesIn("", "/data/graph.pfg"), 0u);
}

#ifdef __linux__
TEST(MappedBytes, OfThisProcess) {
  const TempDir temp;
  const auto path = temp.path() / "file";
  ASSERT_TRUE(WriteFileAtomic(path, std::string(1 << 20, 'x')).ok());
  const auto mapped = *MappedFile::Open(path, MappedFile::Access::kNormal);
  uint64_t sum = 0;
  for (size_t i = 0; i < mapped->size(); i += 4096) sum += static_cast<uint64_t>(mapped->data()[i]);
  EXPECT_EQ(sum, 256u * 'x');
  EXPECT_EQ(MappedBytesOf(path), uint64_t{1} << 20);
}
#endif

class CgroupLimitTest : public CgroupTest {};

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

TEST(ResidentMemory, GrowsWithWhatIsTouched) {
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  constexpr size_t kBytes = 64 << 20;
  const std::vector<char> touched(kBytes, 1);
  const uint64_t after = ResidentBytes();
  EXPECT_GE(after, before + kBytes / 2);
  EXPECT_EQ(touched.back(), 1);
}

#ifdef __linux__
TEST(Boot, HasAName) { EXPECT_NE(BootId(), ""); }
#endif

using testing::HasSubstr;

TEST(DiskReserve, KeepsItsBytesFree) {
  const TempDir dir;
  const DiskReserve one(dir.path(), 1);
  ASSERT_TRUE(one.Free());
  EXPECT_TRUE(one.Check().ok()) << one.Check();
  EXPECT_FALSE(one.Check(std::numeric_limits<uint64_t>::max()).ok()) << "what is wanted counts too";
  const DiskReserve all(dir.path(), uint64_t{1} << 60);
  const absl::Status full = all.Check();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_TRUE(IsTransient(full)) << "others may delete something";
  EXPECT_EQ(GetReason(full).reason, "DISK_NEARLY_FULL");
  EXPECT_EQ(GetReason(full).metadata.at("reserve"), std::to_string(uint64_t{1} << 60));
  EXPECT_THAT(std::string(full.message()), HasSubstr(dir.path().string() + ": the disk is nearly full: "));
  EXPECT_THAT(std::string(full.message()), HasSubstr("--min-free-disk"));
}

TEST(DiskReserve, OfNothingOrOfAnUnknownDiskItKeepsNothing) {
  EXPECT_TRUE(DiskReserve().Check(std::numeric_limits<uint64_t>::max()).ok());
  const TempDir dir;
  EXPECT_TRUE(DiskReserve(dir.path(), 0).Check(std::numeric_limits<uint64_t>::max()).ok());
  EXPECT_TRUE(DiskReserve(dir.path() / "none", uint64_t{1} << 60).Check().ok());
}

}  // namespace
}  // namespace permafrost
