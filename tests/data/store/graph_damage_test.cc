// Stores of a graph that were damaged on disk, or that change while they are mapped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/graph_fixture.h"
#include "data/ogb_folder.h"
#include "data/store/graph.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class GraphDamageTest : public ::testing::TestWithParam<bool> {
 protected:
  GraphDamageTest() {
    TestGraph graph =
        MakeTestGraph(GetParam() ? TestGraphOptions{.symmetric = true, .features = DataType::kNone, .text_names = true}
                                 : TestGraphOptions{});
    EXPECT_TRUE(graph.Write(path().parent_path()).ok());
    bytes_ = *ReadFile(path());
  }
  fs::path path() const { return temp_.path() / "store" / Graph::kFileName; }
  absl::StatusOr<std::shared_ptr<const Graph>> Open() const { return Graph::Open(path().parent_path()); }
  // Overwrites the file in place, and sets its time a second later, so that any clock shows the change.
  void Overwrite(std::string_view bytes) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    fs::last_write_time(path(), fs::last_write_time(path()) + std::chrono::seconds(1));
  }
  // Returns what an error about this byte of the file must contain: "section NAME: bytes A..B: ", or the text for a
  // gap.
  std::string WhereIs(uint64_t at) const {
    for (const SectionEntry& e : StoreImage(bytes_).entries()) {
      if (at < e.offset || at >= e.offset + e.bytes) continue;
      const uint64_t block = (at - e.offset) / e.block_bytes * e.block_bytes;
      return absl::StrCat("section ", AbslView(kSectionNames.Name(e.kind)), ": bytes ", block, "..",
                          std::min(e.bytes, block + e.block_bytes) - 1, ": ");
    }
    return absl::StrCat("gap before it: byte ", at, " of the file");
  }

  TempDir temp_;
  std::string bytes_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, GraphDamageTest, ::testing::Bool(), [](const ::testing::TestParamInfo<bool>& kind) {
  return kind.param ? "SymmetricAndSparse" : "DirectedAndDense";
});

TEST_P(GraphDamageTest, AnyFlippedByteIsRefusedOrReported) {
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&file](uint64_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    file.flush();
    ASSERT_TRUE(file.good());
  };
  const StoreImage store(bytes_);
  const uint64_t read_at_open = sizeof(FileHeader) + store.header().section_count * sizeof(SectionEntry);
  const SectionEntry summary = store.entry(SectionKind::kSummary);
  std::mt19937_64 random(2026);
  int refused = 0, reported = 0;
  for (int i = 0; i < 1000; ++i) {
    // Every second byte comes from the beginning or the end of the file. The headers, gaps and small sections lie
    // there, and they are few bytes.
    const uint64_t at = i % 2 == 0   ? random() % bytes_.size()
                        : i % 4 == 1 ? random() % 6000
                                     : bytes_.size() - 1 - random() % 6000;
    SCOPED_TRACE(at);
    put(at, static_cast<char>(bytes_[at] ^ (1 << random() % 8)));
    const auto graph = Open();
    const bool at_open = at < read_at_open || at >= summary.offset;
    if (!graph.ok()) {
      ++refused;
      // A flipped version field may look like a later version.
      const bool newer = at >= offsetof(FileHeader, version) && at < offsetof(FileHeader, endianness) &&
                         absl::IsFailedPrecondition(graph.status());
      ASSERT_TRUE(absl::IsDataLoss(graph.status()) || newer) << graph.status();
      ASSERT_THAT(std::string(graph.status().message()), HasSubstr(path().string() + ": "));
      ASSERT_TRUE(at_open) << "nothing else was read: " << graph.status();
    } else {
      ++reported;
      const absl::Status status = (*graph)->VerifyAll(nullptr);
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      ASSERT_THAT(std::string(status.message()), HasSubstr(path().string() + ": "));
      const bool in_gap = WhereIs(at).starts_with("gap");
      ASSERT_THAT(std::string(status.message()), HasSubstr(WhereIs(at)));
      ASSERT_EQ(ReadEverything(**graph), in_gap) << "readers never see a gap";
      ASSERT_EQ((*graph)->CheckIntact().ok(), in_gap);
    }
    put(at, bytes_[at]);
  }
  EXPECT_GT(refused, 30);
  EXPECT_GT(reported, 500);
  const auto graph = Open();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE((*graph)->VerifyAll(nullptr).ok());
}

TEST_P(GraphDamageTest, AFileCutShortIsRefused) {
  for (uint64_t length = 0; length < bytes_.size(); length += 4096) {
    WriteText(path(), std::string_view(bytes_).substr(0, length));
    const auto graph = Open();
    ASSERT_EQ(graph.status().code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(graph.status().message()), HasSubstr("file length: is " + std::to_string(length)));
  }
}

TEST_P(GraphDamageTest, AFileCutShortWhileItIsMappedIsDataLoss) {
  for (const bool touched : {false, true}) {
    for (uint64_t length = 0; length < bytes_.size(); length += 16 * 4096) {
      WriteText(path(), bytes_);
      const auto graph = Open();
      ASSERT_TRUE(graph.ok()) << graph.status();
      if (touched) {
        ASSERT_TRUE(ReadEverything(**graph));
      }
      fs::resize_file(path(), length);
      ReadEverything(**graph);
      const absl::Status intact = (*graph)->CheckIntact();
      EXPECT_EQ(intact.code(), absl::StatusCode::kDataLoss) << length;
      EXPECT_THAT(std::string(intact.message()), HasSubstr("was cut short while it was in use")) << length;
      EXPECT_EQ((*graph)->VerifyAll(nullptr).code(), absl::StatusCode::kDataLoss) << length;
    }
  }
}

// The test stands for an error of the disk: a read fails, and the file remains unchanged.
TEST_P(GraphDamageTest, AReadThatFailsOfAFileThatIsWholeIsTransient) {
  const auto graph = Open();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto time = fs::last_write_time(path());
  fs::resize_file(path(), 0);
  ReadEverything(**graph);
  WriteText(path(), bytes_);
  fs::last_write_time(path(), time);
  for (const absl::Status& status : {(*graph)->CheckIntact(), (*graph)->VerifyAll(nullptr)}) {
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_EQ(std::string(status.message()), path().string() + ": cannot read: Input/output error");
  }
  const auto anew = Open();
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_TRUE(ReadEverything(**anew));
  EXPECT_TRUE((*anew)->CheckIntact().ok());
}

TEST_P(GraphDamageTest, AFileWrittenToWhileItIsMappedIsDataLoss) {
  std::mt19937_64 random(3);
  std::string noise(bytes_.size(), '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const bool touched : {false, true}) {
    for (const std::string& other : {std::string(bytes_.size(), '\0'), std::string(bytes_.size(), '\xff'), noise}) {
      WriteText(path(), bytes_);
      const auto graph = Open();
      ASSERT_TRUE(graph.ok()) << graph.status();
      if (touched) {
        ASSERT_TRUE(ReadEverything(**graph));
      }
      Overwrite(other);
      // A touched page may hold anything now. Adjacency::Of must stay within the columns all the same. Callers check
      // the ids that they follow.
      bool ok = true;
      const Adjacency& in = (*graph)->view().in;
      for (uint64_t n = 0; n < (*graph)->view().nodes; ++n) {
        const auto extent = in.Of(static_cast<NodeId>(n), ok);
        EXPECT_LE(extent.begin, extent.end);
        EXPECT_LE(extent.end, in.neighbors.size());
      }
      EXPECT_EQ(ok, touched);
      const absl::Status intact = (*graph)->CheckIntact();
      EXPECT_EQ(intact.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(intact.message()), HasSubstr("was written to while it was in use"));
    }
  }
}

// If the clock of the file system is too coarse to show the change, the checksums of the blocks show it.
TEST_P(GraphDamageTest, ABlockChangedBeforeItIsTouchedIsDataLossAtAnyTime) {
  const auto graph = Open();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto time = fs::last_write_time(path());
  Overwrite(bytes_.substr(0, kFirstSection) + std::string(bytes_.size() - kFirstSection, '\1'));
  fs::last_write_time(path(), time);
  EXPECT_FALSE((*graph)->view().in.offsets.Touch(0, 1));
  EXPECT_THAT(std::string((*graph)->CheckIntact().message()),
              HasSubstr("section in_offsets: bytes 0..65535: checksum"));
}

TEST_P(GraphDamageTest, AFilePutInItsPlaceChangesNothing) {
  const auto graph = Open();
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(WriteFileAtomic(path(), "another").ok());
  EXPECT_TRUE(ReadEverything(**graph));
  EXPECT_TRUE((*graph)->CheckIntact().ok());
}

}  // namespace
}  // namespace permafrost::data
