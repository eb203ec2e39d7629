#include "data/rows/row_caches.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "base/monotonic.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

TEST(ReadAhead, BringsARangeIntoMemory) {
  constexpr uint64_t kPage = 4096, kBytes = uint64_t{24} << 20, kFrom = uint64_t{8} << 20;
  TempDir temp;
  const auto path = temp.path() / "file";
  ASSERT_TRUE(WriteFileAtomic(path, std::string(kBytes, 'x')).ok());
  const Descriptor file = OpenRetrying(path, O_RDONLY);
  const auto mapped = *MappedFile::Open(path, MappedFile::Access::kRandom);
  const auto resident = [&](uint64_t begin, uint64_t end) {
    std::vector<unsigned char> pages((end - begin) / kPage);
    EXPECT_EQ(mincore(const_cast<std::byte*>(mapped->data()) + begin, end - begin, pages.data()), 0);
    uint64_t count = 0;
    for (const unsigned char page : pages) count += page & 1;
    return count;
  };
  ASSERT_EQ(fsync(file.get()), 0);
  ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (resident(kFrom, kBytes) > 0) GTEST_SKIP() << "the file system keeps its pages";
  ReadAhead(path, {kFrom, kBytes}).Wait();
  // A disk answers in any order, so pages requested earlier may arrive after the last one.
  const Stopwatch waiting;
  // The kernel may skip some pages if memory is short, so only nine tenths of each piece must arrive.
  constexpr uint64_t kPiece = uint64_t{4} << 20, kFewestPages = kPiece / kPage * 9 / 10;
  for (uint64_t begin = kFrom; begin < kBytes; begin += kPiece) {
    const uint64_t end = begin + kPiece;
    while (resident(begin, end) < kFewestPages && waiting.Elapsed() < absl::Seconds(30)) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_GE(resident(begin, end), kFewestPages) << "from byte " << begin;
  }
  EXPECT_EQ(resident(0, kFrom), 0u);
}

TEST(ReadAhead, StopsWhenItGoesAndWhereThereIsNothingToRead) {
  TempDir temp;
  ReadAhead(temp.path() / "none", {0, 100}).Wait();
  ASSERT_TRUE(WriteFileAtomic(temp.path() / "file", std::string(1 << 20, 'x')).ok());
  ReadAhead(temp.path() / "file", {5, 5}).Wait();
  ReadAhead(temp.path() / "file", {0, uint64_t{1} << 40}).Wait();
  const ReadAhead unwaited(temp.path() / "file", {0, 1 << 20});
}

}  // namespace
}  // namespace permafrost::data
