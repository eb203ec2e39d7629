#include "data/store/graph_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/ogb_folder.h"
#include "data/store/format.h"
#include "data/store/other_features.h"
#include "data/store/other_splits.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class GraphSetTest : public ::testing::Test {
 protected:
  GraphSetTest() {
    set_ = MakeStore(temp_.path(), PlacedSet());
    path_ = temp_.path() / "store" / GraphSet::kFileName;
    bytes_ = *ReadFile(path_);
  }
  void Write(const std::string& bytes) { WriteText(path_, bytes); }
  absl::StatusOr<std::shared_ptr<const GraphSet>> Open() const { return GraphSet::Open(path_.parent_path()); }
  // Opens the set, touches everything, and returns the first error.
  absl::Status OpenAndTouch() const {
    const auto set = Open();
    return set.ok() ? Touch(**set) : set.status();
  }
  static absl::Status Touch(const GraphSet& set) {
    for (const absl::Status& status :
         {set.node_offsets().status(), set.edge_offsets().status(), set.edge_source().status(),
          set.edge_target().status(), set.node_features().status(), set.edge_features().status(),
          set.positions().status(), set.labels().status(), set.split(Split::kTrain).status(),
          set.split(Split::kValid).status(), set.split(Split::kTest).status(), set.categories().status()}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // A flipped version field may look like a later version.
  static bool SaysNewer(const absl::Status& status, size_t at) {
    return at >= offsetof(FileHeader, version) && at < offsetof(FileHeader, endianness) &&
           absl::IsFailedPrecondition(status);
  }
  void FlipEveryByte() const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&file](size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
      file.flush();
      ASSERT_TRUE(file.good());
    };
    for (size_t at = 0; at < bytes_.size(); ++at) {
      put(at, static_cast<char>(bytes_[at] ^ 0x10));
      const absl::Status status = OpenAndTouch();
      ASSERT_TRUE(absl::IsDataLoss(status) || SaysNewer(status, at)) << "byte " << at << ": " << status;
      ASSERT_THAT(std::string(status.message()), HasSubstr(path_.string())) << "byte " << at;
      put(at, bytes_[at]);
    }
    EXPECT_TRUE(OpenAndTouch().ok());
  }

  TempDir temp_;
  std::shared_ptr<const GraphSet> set_;
  fs::path path_;
  std::string bytes_;
};

TEST_F(GraphSetTest, SectionsAreAlignedAndNothingIsCopied) {
  ASSERT_NE(set_, nullptr);
  EXPECT_EQ(set_->mapped_bytes(), bytes_.size());
  const auto first = *set_->edge_source(), second = *set_->edge_source();
  EXPECT_EQ(first.data(), second.data());
  for (const void* section :
       {static_cast<const void*>(set_->node_offsets()->data()), static_cast<const void*>(first.data()),
        static_cast<const void*>(set_->labels()->data())}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(section) % 64, 0u);
  }
}

TEST_F(GraphSetTest, MissingFile) {
  const auto set = GraphSet::Open(temp_.path() / "nowhere");
  EXPECT_EQ(set.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(GraphSetTest, Version1IsReadAsItWas) {
  const auto edges = ToVector(*set_->edge_source());
  const auto labels = set_->labels()->size();
  Write(StoreImage(bytes_).AsVersion(1));
  const auto old = Open();
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_TRUE(Touch(**old).ok()) << Touch(**old);
  EXPECT_TRUE((*old)->VerifyAll(nullptr).ok());
  EXPECT_EQ(ToVector(*(*old)->edge_source()), edges);
  EXPECT_EQ((*old)->labels()->size(), labels);
  EXPECT_EQ((*old)->summary().all.edges, set_->summary().all.edges);
}

TEST_F(GraphSetTest, SetsWithoutPositionsAreReadAsTheyWere) {
  EXPECT_EQ(set_->summary().position_columns, 4);
  EXPECT_EQ(set_->positions()->width, 4);
  TempDir temp;
  const auto set = MakeStore(temp.path(), SmallSet());
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(set->summary().position_columns, 0);
  EXPECT_EQ(set->positions()->type, DataType::kNone);
  EXPECT_EQ(Touch(*set), absl::OkStatus());
}

TEST_F(GraphSetTest, SetsMadeOfItKeepItsPositions) {
  const std::vector<float> positions = ToVector(set_->positions()->floats);
  ASSERT_EQ(positions.size(), 20U);
  for (const auto& made :
       {WithFeatures(set_, MadeFeatures::kDegree), WithFold(set_, {.folds = 3}),
        WithSplits(set_, {.rows = {{{0}, {1}, {2}}}, .name = "other"}, set_->summary(), /*checksum=*/1),
        Translate(set_, Translation())}) {
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_NE(*made, set_);
    EXPECT_EQ((*made)->summary().position_columns, 4);
    EXPECT_EQ(ToVector((*made)->positions()->floats), positions);
  }
}

TEST_F(GraphSetTest, VerifyAllTellsOfItsProgressAndMayBeStopped) {
  uint64_t last = 0, all = 0;
  ASSERT_TRUE(set_->VerifyAll([&](uint64_t done, uint64_t total) {
                    EXPECT_GT(done, last);
                    last = done;
                    all = total;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(last, all);
  EXPECT_EQ(set_->VerifyAll([](uint64_t, uint64_t) { return false; }).code(), absl::StatusCode::kCancelled);
}

TEST_F(GraphSetTest, AnyFlippedByteIsFound) {
  set_.reset();
  for (const bool first_version : {false, true}) {
    if (first_version) bytes_ = StoreImage(bytes_).AsVersion(1);
    Write(bytes_);
    FlipEveryByte();
  }
}

// Damages the file at seeded places, and checks with VerifyAll instead of touching.
TEST_F(GraphSetTest, VerifyAllFindsAnyFlippedByteThatOpenLetPass) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const size_t at = random() % bytes_.size();
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    Write(damaged);
    const auto set = Open();
    const absl::Status status = set.ok() ? (*set)->VerifyAll(nullptr) : set.status();
    ASSERT_TRUE(absl::IsDataLoss(status) || SaysNewer(status, at)) << "byte " << at << ": " << status;
    if (!set.ok()) continue;
    EXPECT_THAT(std::string(status.message()), HasSubstr(": section ")) << "byte " << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr(": bytes ")) << "byte " << at;
  }
}

TEST_F(GraphSetTest, AnyOtherLengthIsRefusedAtOpen) {
  set_.reset();
  for (size_t length = bytes_.size() + 1; length-- > 0;) {
    if (length == bytes_.size()) fs::resize_file(path_, length + 1);
    if (length < bytes_.size()) fs::resize_file(path_, length);
    const auto set = Open();
    ASSERT_EQ(set.status().code(), absl::StatusCode::kDataLoss) << length;
    ASSERT_THAT(std::string(set.status().message()), HasSubstr("file length")) << length;
  }
}

TEST_F(GraphSetTest, ADamagedSectionSpoilsOnlyItsReadersAndStaysKnown) {
  StoreImage store(bytes_);
  store.SetElement(SectionKind::kLabels, 0, 7.0f);
  Write(store.bytes());
  const auto set = Open();
  ASSERT_TRUE(set.ok()) << "sections are verified at first touch: " << set.status();
  EXPECT_TRUE((*set)->edge_target().ok());
  const absl::Status first = (*set)->labels().status();
  EXPECT_EQ(first.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(first.message()), HasSubstr("section labels: bytes 0..11: checksum: is "));
  Write(bytes_);
  EXPECT_EQ((*set)->labels().status(), first) << "the first finding stands";
}

// These files have correct checksums but inconsistent contents, as from a faulty writer or an attacker.
TEST_F(GraphSetTest, WhatDoesNotAddUpIsNamed) {
  using K = SectionKind;
  const auto edit_header = [](void (*edit)(FileHeader&)) {
    return [edit](StoreImage& s) {
      FileHeader h = s.header();
      edit(h);
      s.set_header(h);
    };
  };
  const auto edit_entry = [](K kind, void (*edit)(SectionEntry&)) {
    return [kind, edit](StoreImage& s) {
      SectionEntry e = s.entry(kind);
      edit(e);
      s.set_entry(kind, e);
    };
  };
  const struct {
    const char* why;
    std::function<void(StoreImage&)> damage;
    const char* want;
  } kCases[] = {
      {"another file", edit_header([](FileHeader& h) { h.magic[0] = 'X'; }), "magic: not a Permafrost graph store"},
      {"no version", edit_header([](FileHeader& h) { h.version = 0; }), "version: is 0, expected 1..3"},
      {"no byte order", edit_header([](FileHeader& h) { h.endianness = 0x01020305; }),
       "endianness: is 01020305, expected 01020304"},
      {"one large graph's", edit_header([](FileHeader& h) { h.layout = StoreLayout::kGraph; }),
       "layout: is 2 (graph), expected 1 (graph_set)"},
      {"an unknown layout", edit_header([](FileHeader& h) { h.layout = static_cast<StoreLayout>(9); }),
       "layout: is 9 (unknown), expected 1 (graph_set)"},
      {"other blocks", edit_header([](FileHeader& h) { h.block_bytes = 4096; }),
       "block_bytes: is 4096, expected 65536"},
      {"a length it has not", edit_header([](FileHeader& h) { h.file_bytes += 64; }), "file length"},
      {"too many sections", edit_header([](FileHeader& h) { h.section_count = 1000; }), "section_count: is 1000"},
      {"sections missing", edit_header([](FileHeader& h) { h.section_count = 1; }), "the sections' end"},
      {"a graph more", edit_header([](FileHeader& h) { h.graphs += 1; }),
       "section node_offsets: rows: is 4, expected 5"},
      {"graphs beyond every id", edit_header([](FileHeader& h) { h.graphs = UINT64_MAX; }), "graphs: is "},
      {"a node more", edit_header([](FileHeader& h) { h.nodes += 1; }),
       "section node_features: rows: is 5, expected 6"},
      {"edges that wrap", edit_header([](FileHeader& h) { h.edges = UINT64_MAX / 2; }), "section edge_source: rows"},
      {"a target more", edit_header([](FileHeader& h) { h.targets = 2; }), "section labels: width: is 1, expected 2"},
      {"an unknown section", edit_entry(K::kLabels, [](SectionEntry& e) { e.kind = static_cast<K>(99); }),
       "kind: is 99"},
      {"a section twice", edit_entry(K::kLabels, [](SectionEntry& e) { e.kind = K::kEdgeSource; }),
       "section edge_source: stands twice"},
      {"a type that is none", edit_entry(K::kLabels, [](SectionEntry& e) { e.type = static_cast<ElementType>(77); }),
       "section labels: type: is 77, expected 1..10"},
      {"another type", edit_entry(K::kLabels, [](SectionEntry& e) { e.type = ElementType::kInt32; }),
       "section labels: type: is int32, expected float32"},
      {"features of width 0", edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.width = 0; }),
       "section node_features: bytes: is 40, expected 5 rows of 0"},
      {"positions of another type", edit_entry(K::kPositions, [](SectionEntry& e) { e.type = ElementType::kInt32; }),
       "section positions: type: is int32, expected float32"},
      {"positions of fewer nodes",
       edit_entry(K::kPositions,
                  [](SectionEntry& e) {
                    e.rows = 4;
                    e.width = 5;
                  }),
       "section positions: rows: is 4, expected 5"},
      {"too many columns of positions",
       edit_entry(K::kPositions,
                  [](SectionEntry& e) {
                    e.rows = 1;
                    e.width = 20;
                  }),
       "section positions: width: is 20, expected 1..16"},
      {"a section of the other layout", edit_entry(K::kLabels, [](SectionEntry& e) { e.kind = K::kInOffsets; }),
       "section in_offsets: has no place in the store of a set of graphs"},
      {"a checksum beside the blocks'", edit_entry(K::kLabels, [](SectionEntry& e) { e.checksum = 1; }),
       "section labels: checksum: is set, expected 0"},
      {"reserved bits", edit_entry(K::kLabels, [](SectionEntry& e) { e.reserved = 1; }),
       "section labels: reserved: is 1, expected 0"},
      {"a width that wraps", edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.width = UINT32_MAX; }),
       "section node_features: bytes"},
      {"an offset off the grid", edit_entry(K::kEdgeTarget, [](SectionEntry& e) { e.offset += 4; }),
       "section edge_target: offset"},
      {"bytes beyond the file", edit_entry(K::kTestGraphs, [](SectionEntry& e) { e.bytes = UINT64_MAX - 8; }),
       "section test_graphs: bytes"},
      {"bytes that are not the rows'", edit_entry(K::kEdgeSource, [](SectionEntry& e) { e.bytes -= 4; }),
       "section edge_source: bytes: is 36, expected 10 rows of 4"},
      {"rows that are not the bytes'", edit_entry(K::kTrainGraphs, [](SectionEntry& e) { e.rows = 4; }),
       "section train_graphs: bytes: is 8, expected 4 rows of 4"},
      {"a summary that is no JSON", [](StoreImage& s) { s.SetElement(K::kSummary, 0, 'x'); }, "section summary: "},
      {"first offset not 0", [](StoreImage& s) { s.SetElement<uint64_t>(K::kNodeOffsets, 0, 1); },
       "section node_offsets: content: first offset: is 1, expected 0"},
      {"last offset not the count", [](StoreImage& s) { s.SetElement<uint64_t>(K::kEdgeOffsets, 3, 9); },
       "section edge_offsets: content: last offset: is 9, expected 10"},
      {"offsets that fall", [](StoreImage& s) { s.SetElement<uint64_t>(K::kNodeOffsets, 1, 5); },
       "section node_offsets: content: offset 2: is 4, expected at least 5"},
      {"offsets beyond all", [](StoreImage& s) { s.SetElement<uint64_t>(K::kEdgeOffsets, 1, UINT64_MAX); },
       "section edge_offsets: content: offset 2"},
      {"a source outside its graph", [](StoreImage& s) { s.SetElement<uint32_t>(K::kEdgeSource, 0, 3); },
       "section edge_source: content: edge 0 ends at node 3 of graph 0, which has 3 nodes"},
      {"a target outside its graph", [](StoreImage& s) { s.SetElement<uint32_t>(K::kEdgeTarget, 9, 1); },
       "section edge_target: content: edge 9 ends at node 1 of graph 2"},
      {"targets not sorted", [](StoreImage& s) { s.SetElement<uint32_t>(K::kEdgeTarget, 0, 2); },
       "section edge_target: content: edge 1 of graph 0 is not sorted by target"},
      {"a graph id outside the set", [](StoreImage& s) { s.SetElement<uint32_t>(K::kValidGraphs, 0, 3); },
       "section valid_graphs: content: graph id: is 3, expected below 3"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    StoreImage store(bytes_);
    c.damage(store);
    store.Seal();
    Write(store.bytes());
    const absl::Status status = OpenAndTouch();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
  }
}

TEST_F(GraphSetTest, WhatMayBeWholeElsewhereIsNotCalledDamaged) {
  const struct {
    const char* why;
    void (*edit)(FileHeader&);
    const char* want;
  } kCases[] = {
      {"a later version", [](FileHeader& h) { h.version = 4; },
       "version: is 4, expected 1..3: written by a newer version of this program, or damaged"},
      {"the other byte order", [](FileHeader& h) { h.endianness = 0x04030201; },
       "endianness: is 04030201, expected 01020304: written by a machine of the other byte order"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    StoreImage store(bytes_);
    FileHeader header = store.header();
    c.edit(header);
    store.set_header(header);
    store.Seal();
    Write(store.bytes());
    const absl::Status status = OpenAndTouch();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(std::string(status.message()), path_.string() + ": " + c.want);
  }
}

TEST_F(GraphSetTest, ManyThreadsTouchAtOnce) {
  for (const bool damaged : {false, true}) {
    StoreImage store(bytes_);
    if (damaged) store.SetElement(SectionKind::kEdgeOffsets, 1, uint64_t{77});
    Write(store.bytes());
    const auto set = Open();
    ASSERT_TRUE(set.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&set, damaged] { EXPECT_EQ(Touch(**set).ok(), !damaged); });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace permafrost::data
