#include "data/source/source_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "data/import/tu_sets.h"
#include "data/ogb_folder.h"
#include "data/source/failing_disk.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

// A fault of the machine passes by itself, so the import waits. A fault of the source stays.
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

// A path that the disk fails to report on is unknown. It must not be taken for absent, nor be read without
// permission.
TEST(OpenSource, WhatCannotBeLookedAtJustNowIsNotTakenForAbsentOrAllowed) {
  const TempDir dir;
  const fs::path path = dir.path() / "edge.csv";
  WriteText(path, "0,1\n");
  const ImportObserver observer;
  const ImportLimits limits{.may_read = [](const fs::path&) { return absl::OkStatus(); }};
  const ImportMonitor monitor(0, observer, std::stop_token(), limits);
  for (const int error : {EIO, ENOMEM}) {
    absl::Status held, found, opened;
    const bool failing = WithoutStat(error, [&] {
      held = HoldsAny(dir.path(), {"edge.csv"}).status();
      found = FindFileAt(path, "edge.csv", Packing::kPlain).status();
      opened = OpenSource({.path = path, .name = "edge.csv", .packing = Packing::kPlain}, monitor).status();
    });
    if (!failing) GTEST_SKIP() << "no call can be made to fail here";
    for (const absl::Status& status : {held, found, opened}) {
      EXPECT_EQ(status.code(), error == EIO ? absl::StatusCode::kInternal : absl::StatusCode::kResourceExhausted)
          << status;
      EXPECT_TRUE(IsTransient(status)) << status;
      EXPECT_THAT(std::string(status.message()), testing::StartsWith("edge.csv: cannot l")) << "look at it, or learn";
    }
  }
}

TEST(OpenSource, WhatIsSaidOfItsPlaceEndsTheImportOrLetsItWait) {
  const TempDir dir;
  const fs::path path = dir.path() / "edge.csv";
  WriteText(path, "0,1\n");
  if (!fs::exists("/proc/self/fd")) GTEST_SKIP() << "this system does not tell where an open file lies";
  const struct {
    const char* why;
    absl::Status said;
    bool transient;
  } kCases[] = {
      {"allowed", absl::OkStatus(), false},
      {"refused", absl::PermissionDeniedError("leads elsewhere"), false},
      {"not known just now", AsTransient(absl::InternalError("/root: cannot resolve")), true},
  };
  for (const auto& c : kCases) {
    const ImportObserver observer;
    fs::path asked;
    const ImportLimits limits{.may_read = [&](const fs::path& lies_at) {
      asked = lies_at;
      return c.said;
    }};
    const ImportMonitor monitor(0, observer, std::stop_token(), limits);
    const absl::Status status =
        OpenSource({.path = path, .name = "raw/edge.csv", .packing = Packing::kPlain}, monitor).status();
    EXPECT_EQ(asked, path) << c.why;
    EXPECT_EQ(status, Annotate(c.said, "raw/edge.csv")) << c.why;
    EXPECT_EQ(IsTransient(status), c.transient) << c.why;
  }
}

// A directory can be opened like a file, but not read.
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

// An archive with a member larger than any buffer.
class ZipMember : public ::testing::Test {
 protected:
  ZipMember() {
    std::string text;
    SplitMix64 random(1, 0);
    for (int i = 0; i < 1'000'000; ++i) text += static_cast<char>('0' + random.Below(10));
    ZipOf(file_.path, {{file_.member, text}});
  }
  // Returns a reader of the member. If it cannot be opened, fails the test and returns null.
  std::unique_ptr<SourceReader> Opened() {
    auto reader = OpenZipMember(file_, file_.member, monitor_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }

  const TempDir dir_;
  const SourceFile file_{.path = dir_.path() / "a.zip", .name = "a.zip", .packing = Packing::kZip, .member = "a.txt"};
  const ImportObserver observer_;
  const ImportLimits limits_;
  ImportMonitor monitor_{0, observer_, std::stop_token(), limits_};
};

absl::Status ReadToItsEnd(SourceReader& reader) {
  std::vector<char> block(1 << 14);
  for (;;) {
    PF_ASSIGN_OR_RETURN(const size_t n, reader.Read(block.data(), block.size()));
    if (n == 0) return absl::OkStatus();
  }
}

TEST_F(ZipMember, TheWantOfDescriptorsIsTheMachines) {
  absl::Status listed, opened;
  {
    const NoDescriptors none(1);  // enough to open the file, but libzip needs another one
    listed = ListZip(file_, monitor_).status();
    opened = OpenZipMember(file_, file_.member, monitor_).status();
  }
  for (const absl::Status& status : {listed, opened}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(IsTransient(status));
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("a.zip: cannot open: "));
  }
}

TEST_F(ZipMember, AReadThatFailsIsTheMachines) {
  if (!fs::exists("/proc/self/fd")) GTEST_SKIP() << "this system does not tell which files are open";
  const auto reader = Opened();
  ASSERT_NE(reader, nullptr);
  ASSERT_EQ(FailReadsOf(file_.path), 1);
  const absl::Status status = ReadToItsEnd(*reader);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(IsTransient(status)) << status;
}

// If a member ends before the size that its archive gives, the archive is at fault.
TEST_F(ZipMember, AFileCutShortIsCorrupt) {
  const auto reader = Opened();
  ASSERT_NE(reader, nullptr);
  fs::resize_file(file_.path, 100'000);
  const absl::Status status = ReadToItsEnd(*reader);
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

// With every packing, a file below the bound is unpacked whole, however regular it is. A file above the bound is cut
// off at it.
TEST(UnpackBound, HoldsForEveryPacking) {
  // Even the weakest packing compresses a column of one value by more than this factor.
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
