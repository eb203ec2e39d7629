#include "data/sampling/page_advisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

const auto kSystemPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// A mapped file of kPages pages.
class PageAdvisorTest : public ::testing::Test {
 protected:
  static constexpr size_t kPages = 600;

  void SetUp() override {
    const auto path = dir_.path() / "pages";
    ASSERT_TRUE(WriteFileSynced(path, std::string(kPages * kSystemPage, 'x')).ok());
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    memory_ = static_cast<std::byte*>(mmap(nullptr, kPages * kSystemPage, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override { munmap(memory_, kPages * kSystemPage); }

  std::span<const std::byte> Bytes(size_t begin, size_t count) const { return {memory_ + begin, count}; }

  TempDir dir_;
  std::byte* memory_ = nullptr;
};

// Advises even if everything is in memory, which is the usual case in a test.
PageAdvisor::Options Always() { return {.merge_gap_bytes = 0, .resident_enough = 2}; }

TEST_F(PageAdvisorTest, MergesByPageAndByGap) {
  struct Range {
    size_t begin, count;
  };
  const struct {
    const char* why;
    std::vector<Range> wanted;
    uint64_t gap_pages, budget_pages;
    int64_t want_pages, want_advised;
  } kCases[] = {
      {"nothing", {}, 0, 0, 0, 0},
      {"no bytes", {{5, 0}}, 0, 0, 0, 0},
      {"one byte is a page", {{5, 1}}, 0, 0, 1, 1},
      {"across a border", {{kSystemPage - 1, 2}}, 0, 0, 2, 2},
      {"a page asked for twice", {{0, 10}, {100, 10}, {0, 10}}, 0, 0, 1, 1},
      {"out of order", {{9 * kSystemPage, 1}, {0, 1}, {5 * kSystemPage, 1}}, 0, 0, 3, 3},
      {"overlapping",
       {{kSystemPage, 4 * kSystemPage}, {0, 2 * kSystemPage}, {3 * kSystemPage, kSystemPage}},
       0,
       0,
       5,
       5},
      {"a gap that is small", {{0, 1}, {3 * kSystemPage, 1}}, 2, 0, 2, 4},
      {"a gap that is too large", {{0, 1}, {4 * kSystemPage, 1}}, 2, 0, 2, 2},
      {"a budget", {{0, 10 * kSystemPage}, {20 * kSystemPage, 10 * kSystemPage}}, 0, 12, 20, 12},
      {"a budget of less than a page", {{0, kSystemPage}}, 0, 0, 1, 1},
  };
  for (const auto& c : kCases) {
    PageAdvisor::Options options = Always();
    options.merge_gap_bytes = c.gap_pages * kSystemPage;
    PageAdvisor advisor(options);
    if (c.budget_pages > 0) advisor.BeginBudget(c.budget_pages * kSystemPage);
    for (const Range& range : c.wanted) advisor.Request(Bytes(range.begin, range.count));
    EXPECT_EQ(advisor.counters().wanted_pages, 0) << c.why << ": nothing before Flush";
    advisor.Flush();
    const PageCounters counters = advisor.counters();
    EXPECT_EQ(counters.wanted_pages, c.want_pages) << c.why;
    EXPECT_EQ(counters.advised_bytes, c.want_advised * static_cast<int64_t>(kSystemPage)) << c.why;
    advisor.Flush();
    EXPECT_EQ(advisor.counters().wanted_pages, c.want_pages) << c.why << ": a flush forgets what was wanted";
  }
}

TEST_F(PageAdvisorTest, ManyRangesTakeFewCallsOrOneEach) {
  PageAdvisor advisor(Always());
  for (size_t page = 0; page < kPages; page += 2) advisor.Request(Bytes(page * kSystemPage, 1));
  advisor.Flush();
  const PageCounters counters = advisor.counters();
  EXPECT_EQ(counters.wanted_pages, 300);
  EXPECT_EQ(counters.advised_bytes, static_cast<int64_t>(300 * kSystemPage));
  EXPECT_GE(counters.advice_calls, 1);
  EXPECT_LE(counters.advice_calls, 301) << "where the kernel takes one range a call, after one try to give it all";
}

TEST_F(PageAdvisorTest, LooksAtASampleOfPages) {
  // Reads every page, so that all of them are in memory.
  size_t sum = 0;
  for (size_t page = 0; page < kPages; ++page) sum += static_cast<size_t>(memory_[page * kSystemPage]);
  ASSERT_GT(sum, 0u);
  PageAdvisor advisor(Always());
  advisor.Request(Bytes(0, kPages * kSystemPage));
  advisor.Flush();
  const PageCounters counters = advisor.counters();
  EXPECT_GT(counters.sampled_pages, 0);
  EXPECT_LE(counters.sampled_pages, counters.wanted_pages);
  EXPECT_EQ(counters.resident_pages, counters.sampled_pages);
}

TEST_F(PageAdvisorTest, StopsAdvisingOnceAllIsThereButGoesOnLooking) {
  for (size_t page = 0; page < kPages; ++page) ASSERT_EQ(memory_[page * kSystemPage], std::byte{'x'});
  PageAdvisor advisor({.resident_enough = 0.9});
  const auto flush = [&] {
    advisor.Request(Bytes(0, kPages * kSystemPage));
    advisor.Flush();
    return advisor.counters();
  };
  PageCounters counters = flush();
  EXPECT_GT(counters.advice_calls, 0) << "nothing is known at first";
  for (int i = 0; i < 30; ++i) counters = flush();
  const PageCounters later = flush();
  EXPECT_EQ(later.advice_calls, counters.advice_calls);
  EXPECT_GT(later.sampled_pages, counters.sampled_pages);
}

TEST_F(PageAdvisorTest, WantsEachBatchUntilAllIsThereAndThenOneInAFew) {
  for (size_t page = 0; page < kPages; ++page) ASSERT_EQ(memory_[page * kSystemPage], std::byte{'x'});
  PageAdvisor advisor({.resident_enough = 0.9, .resident_batches = 4});
  std::string wanted;
  for (int batch = 0; batch < 30; ++batch) {
    const bool wants = advisor.WantsBatch();
    wanted += wants ? '1' : '0';
    if (!wants) continue;
    advisor.Request(Bytes(0, kPages * kSystemPage));
    advisor.Flush();
  }
  // The mean resident share exceeds 0.9 after nine flushes. From then on one batch in four asks.
  EXPECT_EQ(wanted, "111111111000100010001000100010");
  PageAdvisor missing({.resident_enough = 2, .resident_batches = 4});
  for (int batch = 0; batch < 30; ++batch) {
    EXPECT_TRUE(missing.WantsBatch()) << "some may be missing";
    missing.Request(Bytes(0, kPages * kSystemPage));
    missing.Flush();
  }
}

TEST_F(PageAdvisorTest, CountsWithoutAdviceWhereItIsOff) {
  PageAdvisor advisor({.enabled = false});
  advisor.Request(Bytes(0, 10 * kSystemPage));
  advisor.Flush();
  EXPECT_EQ(advisor.counters().wanted_pages, 10);
  EXPECT_GT(advisor.counters().sampled_pages, 0);
  EXPECT_EQ(advisor.counters().advice_calls, 0);
  EXPECT_EQ(advisor.counters().advised_bytes, 0);
}

TEST_F(PageAdvisorTest, AddressesThatAreNotMappedAreOnlyNamed) {
  auto* hole = static_cast<std::byte*>(mmap(nullptr, 20 * kSystemPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(hole, MAP_FAILED);
  munmap(hole + 5 * kSystemPage, 10 * kSystemPage);
  PageAdvisor advisor(Always());
  // One range lies in the hole, one crosses its border, and one lies after it. The last range is advised even though
  // the others fail.
  advisor.Request({hole + 7 * kSystemPage, kSystemPage});
  advisor.Request({hole + 4 * kSystemPage, 2 * kSystemPage});
  advisor.Request({hole + 16 * kSystemPage, kSystemPage});
  advisor.Request(Bytes(0, kSystemPage));
  advisor.Flush();
  EXPECT_EQ(advisor.counters().wanted_pages, 5);
  EXPECT_LE(advisor.counters().sampled_pages, 4) << "what is not mapped cannot be looked at";
  munmap(hole, 5 * kSystemPage);
  munmap(hole + 15 * kSystemPage, 5 * kSystemPage);
}

TEST_F(PageAdvisorTest, MajorFaultsAreOfTheAdvisorsTime) { EXPECT_GE(PageAdvisor({}).counters().major_faults, 0); }

}  // namespace
}  // namespace permafrost::data
