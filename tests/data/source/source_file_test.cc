#include "data/source/source_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "base/random.h"
#include "base/status.h"
#include "data/import/tu_sets.h"
#include "data/ogb_folder.h"
#include "data/source/unpack_bound.h"
#include "data/source/zip_member.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

// What is the machine's passes by itself, and an import waits for it; what is the source's does not.
TEST(OpenSource, TellsTheMachinesErrorsFromTheSources) {
  const TempDir dir;
  const ImportObserver observer;
  const ImportLimits limits;
  const ImportMonitor monitor(0, observer, std::stop_token(), limits);
  const fs::path path = dir.path() / "edge.csv", loop = dir.path() / "loop";
  WriteText(path, "0,1\n");
  fs::create_symlink("loop", loop);
  const auto open = [&](const fs::path& file) {
    return OpenSource({.path = file, .name = "raw/edge.csv", .packing = Packing::kPlain}, monitor).status();
  };
  EXPECT_TRUE(open(path).ok());

  EXPECT_EQ(open(dir.path() / "nothing").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsTransient(open(dir.path() / "nothing")));
  EXPECT_EQ(open(loop).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(IsTransient(open(loop)));

  absl::Status none_left;
  {
    const NoDescriptors none;
    none_left = open(path);
  }
  EXPECT_EQ(none_left.code(), absl::StatusCode::kResourceExhausted) << none_left;
  EXPECT_TRUE(IsTransient(none_left));
  EXPECT_THAT(std::string(none_left.message()), testing::StartsWith("raw/edge.csv: cannot open: "));
}

// A directory opens as a file does, and cannot be read.
TEST(SourceReader, AReadThatFailsIsTheMachines) {
  const TempDir dir;
  const ImportObserver observer;
  const ImportLimits limits;
  ImportMonitor monitor(0, observer, std::stop_token(), limits);
  for (const Packing packing : {Packing::kPlain, Packing::kGzip, Packing::kZstd, Packing::kFound}) {
    const auto reader =
        SourceReader::Open({.path = dir.path(), .name = "raw/edge.csv", .packing = packing, .member = {}}, monitor);
    char byte = 0;
    const absl::Status status = reader.ok() ? (*reader)->Read(&byte, 1).status() : reader.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_TRUE(IsTransient(status)) << static_cast<int>(packing);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot read: "));
  }
}

// As a.zip, a member that no buffer holds whole.
SourceFile LargeMember(const fs::path& directory) {
  std::string text;
  SplitMix64 random(1, 0);
  for (int i = 0; i < 1'000'000; ++i) text += static_cast<char>('0' + random.Below(10));
  ZipOf(directory / "a.zip", {{"a.txt", text}});
  return {.path = directory / "a.zip", .name = "a.zip", .packing = Packing::kZip, .member = "a.txt"};
}

absl::Status ReadToItsEnd(SourceReader& reader) {
  std::vector<char> block(1 << 14);
  for (;;) {
    PF_ASSIGN_OR_RETURN(const size_t n, reader.Read(block.data(), block.size()));
    if (n == 0) return absl::OkStatus();
  }
}

TEST(ZipMember, TheWantOfDescriptorsIsTheMachines) {
  const TempDir dir;
  const SourceFile file = LargeMember(dir.path());
  const ImportObserver observer;
  const ImportLimits limits;
  ImportMonitor monitor(0, observer, std::stop_token(), limits);
  absl::Status listed, opened;
  {
    const NoDescriptors none(1);  // enough to open the file, which libzip wants another for
    listed = ListZip(file, monitor).status();
    opened = OpenZipMember(file, "a.txt", monitor).status();
  }
  for (const absl::Status& status : {listed, opened}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(IsTransient(status));
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("a.zip: cannot open: "));
  }
}

TEST(ZipMember, AReadThatFailsIsTheMachines) {
  if (!fs::exists("/proc/self/fd")) GTEST_SKIP() << "this system does not tell which files are open";
  const TempDir dir;
  const SourceFile file = LargeMember(dir.path());
  const ImportObserver observer;
  const ImportLimits limits;
  ImportMonitor monitor(0, observer, std::stop_token(), limits);
  const auto reader = OpenZipMember(file, "a.txt", monitor);
  ASSERT_TRUE(reader.ok()) << reader.status();
  // In the open file's place one that may not be read.
  WriteText(dir.path() / "other", "x");
  const Descriptor unreadable = OpenRetrying(dir.path() / "other", O_WRONLY);
  int replaced = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) != file.path) continue;
    replaced += dup2(unreadable.get(), std::stoi(entry.path().filename().string())) >= 0 ? 1 : 0;
  }
  ASSERT_EQ(replaced, 1);
  const absl::Status status = ReadToItsEnd(**reader);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(IsTransient(status)) << status;
}

// What ends before its archive says so is the archive's.
TEST(ZipMember, AFileCutShortIsCorrupt) {
  const TempDir dir;
  const SourceFile file = LargeMember(dir.path());
  const ImportObserver observer;
  const ImportLimits limits;
  ImportMonitor monitor(0, observer, std::stop_token(), limits);
  const auto reader = OpenZipMember(file, "a.txt", monitor);
  ASSERT_TRUE(reader.ok()) << reader.status();
  fs::resize_file(file.path, 100'000);
  const absl::Status status = ReadToItsEnd(**reader);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(UnpackBound, IsTheLargerOfSizeAndRatio) {
  constexpr uint64_t kEveryByte = std::numeric_limits<uint64_t>::max();
  const struct {
    const char* why;
    uint64_t packed;
    ImportLimits limits;
    uint64_t most;
  } kCases[] = {
      {"a small file may unpack far", 10, {.harmless_unpacked_bytes = 5000, .most_expansion = 200}, 5000},
      {"a large one by the ratio", 100, {.harmless_unpacked_bytes = 5000, .most_expansion = 200}, 20'000},
      {"of nothing but the size", 0, {.harmless_unpacked_bytes = 5000, .most_expansion = 200}, 5000},
      {"the product stays within 64 bits", kEveryByte / 2, {.most_expansion = 200}, kEveryByte},
  };
  for (const auto& c : kCases) {
    UnpackBound bound(c.packed, c.limits);
    EXPECT_TRUE(bound.Add(c.most).ok()) << c.why;
    if (c.most == kEveryByte) continue;
    const absl::Status refused = bound.Add(1);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << c.why;
    EXPECT_EQ(GetReason(refused).reason, kUnpacksTooFar) << c.why;
    EXPECT_FALSE(IsTransient(refused)) << c.why << ": it is the same tomorrow";
    EXPECT_THAT(std::string(refused.message()), HasSubstr("unpack it or write it uncompressed")) << c.why;
  }
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Of every packing: what is below the bound comes out whole, however regular, and what is above ends at it.
TEST(UnpackBound, HoldsForEveryPacking) {
  // Below what the weakest of them packs a column of one value to.
  constexpr uint64_t kExpansion = 50;
  const TempDir dir;
  const std::string column = [] {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "2019\n";
    return text;
  }();
  const auto path = [&dir](const std::string& name) { return dir.path() / name; };
  WriteText(path("year.csv.gz"), Gzip(column));
  WriteText(path("year.csv.zst"), Zstd(column));
  ZipOf(path("years.zip"), {{"year.csv", column}});
  const SourceFile files[] = {
      {.path = path("year.csv.gz"), .name = "year.csv.gz", .packing = Packing::kGzip},
      {.path = path("year.csv.zst"), .name = "year.csv.zst", .packing = Packing::kFound},
      {.path = path("years.zip"), .name = "years.zip", .packing = Packing::kZip, .member = "year.csv"},
  };
  for (const SourceFile& file : files) {
    ASSERT_LT(fs::file_size(file.path) * kExpansion, column.size())
        << file.name << ": below the ratio it shows nothing";
    const auto read = [&file](const ImportLimits& limits) -> absl::StatusOr<uint64_t> {
      const ImportObserver observer;
      ImportMonitor monitor(0, observer, std::stop_token(), limits);
      PF_ASSIGN_OR_RETURN(const auto reader, SourceReader::Open(file, monitor));
      std::vector<char> block(1 << 14);
      for (uint64_t sum = 0;;) {
        PF_ASSIGN_OR_RETURN(const size_t n, reader->Read(block.data(), block.size()));
        if (n == 0) return sum;
        sum += n;
      }
    };
    EXPECT_EQ(read({.harmless_unpacked_bytes = column.size(), .most_expansion = kExpansion}).value_or(0), column.size())
        << file.name;
    const absl::Status refused =
        read({.harmless_unpacked_bytes = column.size() - 1, .most_expansion = kExpansion}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << file.name << ": " << refused;
  }
}

}  // namespace
}  // namespace permafrost::data
