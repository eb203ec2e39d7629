#include "data/graph_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "data/format.h"
#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The bytes of a small store, to be damaged.
class StoreBytes {
 public:
  explicit StoreBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string& bytes() { return bytes_; }
  FileHeader header() const { return Load<FileHeader>(0); }
  void set_header(const FileHeader& header) { std::memcpy(bytes_.data(), &header, sizeof header); }
  SectionEntry entry(SectionKind kind) const { return Load<SectionEntry>(EntryOffset(kind)); }
  void set_entry(SectionKind kind, const SectionEntry& entry) {
    std::memcpy(bytes_.data() + EntryOffset(kind), &entry, sizeof entry);
  }
  template <class T>
  void SetElement(SectionKind kind, size_t index, T value) {
    std::memcpy(bytes_.data() + entry(kind).offset + index * sizeof(T), &value, sizeof value);
  }
  // Makes all checksums true again.
  void Seal() {
    for (const auto& [kind, name] : kSectionNames.rows) {
      if (EntryOffset(kind) == 0) continue;
      SectionEntry e = entry(kind);
      if (e.offset > bytes_.size() || e.bytes > bytes_.size() - e.offset) continue;
      e.checksum = Hash64(bytes_.data() + e.offset, e.bytes);
      set_entry(kind, e);
    }
    FileHeader h = header();
    StreamHash hash;
    hash.Update(bytes_.data(), offsetof(FileHeader, checksum));
    hash.Update(bytes_.data() + sizeof h,
                std::min<size_t>(h.section_count * sizeof(SectionEntry), bytes_.size() - sizeof h));
    h.checksum = hash.Digest();
    set_header(h);
  }

 private:
  template <class T>
  T Load(size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  size_t EntryOffset(SectionKind kind) const {
    for (size_t i = 0; i < kSectionKinds; ++i) {
      const size_t at = sizeof(FileHeader) + i * sizeof(SectionEntry);
      if (Load<SectionEntry>(at).kind == kind) return at;
    }
    return 0;
  }
  std::string bytes_;
};

class GraphSetTest : public ::testing::Test {
 protected:
  GraphSetTest() {
    set_ = MakeStore(temp_.path(), SmallSet());
    path_ = temp_.path() / "store" / GraphSet::kFileName;
    bytes_ = *ReadFile(path_);
  }
  void Write(const std::string& bytes) { WriteText(path_, bytes); }
  absl::StatusOr<std::shared_ptr<const GraphSet>> Open() const { return GraphSet::Open(path_.parent_path()); }
  // The first error of opening and touching everything.
  absl::Status OpenAndTouch() const {
    const auto set = Open();
    return set.ok() ? Touch(**set) : set.status();
  }
  static absl::Status Touch(const GraphSet& set) {
    for (const absl::Status& status :
         {set.node_offsets().status(), set.edge_offsets().status(), set.edge_source().status(),
          set.edge_target().status(), set.node_features().status(), set.edge_features().status(), set.labels().status(),
          set.split(Split::kTrain).status(), set.split(Split::kValid).status(), set.split(Split::kTest).status()}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
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

TEST_F(GraphSetTest, AnyFlippedByteIsFound) {
  set_.reset();
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
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << "byte " << at << ": " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(path_.string())) << "byte " << at;
    put(at, bytes_[at]);
  }
  EXPECT_TRUE(OpenAndTouch().ok());
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
  StoreBytes store(bytes_);
  store.SetElement(SectionKind::kLabels, 0, 7.0f);
  Write(store.bytes());
  const auto set = Open();
  ASSERT_TRUE(set.ok()) << "sections are verified at first touch: " << set.status();
  EXPECT_TRUE((*set)->edge_target().ok());
  const absl::Status first = (*set)->labels().status();
  EXPECT_EQ(first.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(first.message()), HasSubstr("section labels: checksum: is "));
  Write(bytes_);
  EXPECT_EQ((*set)->labels().status(), first) << "the first finding stands";
}

// Files whose checksums are true and whose content is not: made by a faulty writer or an enemy.
TEST_F(GraphSetTest, WhatDoesNotAddUpIsNamed) {
  using K = SectionKind;
  const auto edit_header = [](void (*edit)(FileHeader&)) {
    return [edit](StoreBytes& s) {
      FileHeader h = s.header();
      edit(h);
      s.set_header(h);
    };
  };
  const auto edit_entry = [](K kind, void (*edit)(SectionEntry&)) {
    return [kind, edit](StoreBytes& s) {
      SectionEntry e = s.entry(kind);
      edit(e);
      s.set_entry(kind, e);
    };
  };
  const struct {
    const char* why;
    std::function<void(StoreBytes&)> damage;
    const char* want;
  } kCases[] = {
      {"another file", edit_header([](FileHeader& h) { h.magic[0] = 'X'; }), "magic: not a Permafrost graph store"},
      {"a later version", edit_header([](FileHeader& h) { h.version = 2; }), "version: is 2, expected 1"},
      {"the other byte order", edit_header([](FileHeader& h) { h.endianness = 0x04030201; }), "endianness"},
      {"a length it has not", edit_header([](FileHeader& h) { h.file_bytes += 64; }), "file length"},
      {"too many sections", edit_header([](FileHeader& h) { h.section_count = 1000; }), "section_count: is 1000"},
      {"sections missing", edit_header([](FileHeader& h) { h.section_count = 1; }), "offset: is "},
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
       "section labels: type: is unknown, expected float32"},
      {"features of width 0", edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.width = 0; }),
       "section node_features: width: is 0"},
      {"a width that wraps", edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.width = UINT32_MAX; }),
       "section node_features: bytes"},
      {"an offset off the grid", edit_entry(K::kEdgeTarget, [](SectionEntry& e) { e.offset += 4; }),
       "section edge_target: offset"},
      {"bytes beyond the file", edit_entry(K::kTestGraphs, [](SectionEntry& e) { e.bytes = UINT64_MAX - 8; }),
       "section test_graphs: bytes"},
      {"bytes that are not the rows'", edit_entry(K::kEdgeSource, [](SectionEntry& e) { e.bytes -= 4; }),
       "section edge_source: bytes: is 36, expected 10 rows of 4"},
      {"a split larger than the set", edit_entry(K::kTrainGraphs, [](SectionEntry& e) { e.rows = 4; }),
       "section train_graphs: rows: is 4, expected at most 3"},
      {"a summary that is no JSON", [](StoreBytes& s) { s.SetElement(K::kSummary, 0, 'x'); }, "section summary: "},
      {"first offset not 0", [](StoreBytes& s) { s.SetElement<uint64_t>(K::kNodeOffsets, 0, 1); },
       "section node_offsets: content: first offset: is 1, expected 0"},
      {"last offset not the count", [](StoreBytes& s) { s.SetElement<uint64_t>(K::kEdgeOffsets, 3, 9); },
       "section edge_offsets: content: last offset: is 9, expected 10"},
      {"offsets that fall", [](StoreBytes& s) { s.SetElement<uint64_t>(K::kNodeOffsets, 1, 5); },
       "section node_offsets: content: offset 2: is 4, expected at least 5"},
      {"offsets beyond all", [](StoreBytes& s) { s.SetElement<uint64_t>(K::kEdgeOffsets, 1, UINT64_MAX); },
       "section edge_offsets: content: offset 2"},
      {"a source outside its graph", [](StoreBytes& s) { s.SetElement<uint32_t>(K::kEdgeSource, 0, 3); },
       "section edge_source: content: edge 0 ends at node 3 of graph 0, which has 3 nodes"},
      {"a target outside its graph", [](StoreBytes& s) { s.SetElement<uint32_t>(K::kEdgeTarget, 9, 1); },
       "section edge_target: content: edge 9 ends at node 1 of graph 2"},
      {"targets not sorted", [](StoreBytes& s) { s.SetElement<uint32_t>(K::kEdgeTarget, 0, 2); },
       "section edge_target: content: edge 1 of graph 0 is not sorted by target"},
      {"a graph id outside the set", [](StoreBytes& s) { s.SetElement<uint32_t>(K::kValidGraphs, 0, 3); },
       "section valid_graphs: content: graph id: is 3, expected below 3"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    StoreBytes store(bytes_);
    c.damage(store);
    store.Seal();
    Write(store.bytes());
    const absl::Status status = OpenAndTouch();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
  }
}

TEST_F(GraphSetTest, ManyThreadsTouchAtOnce) {
  for (const bool damaged : {false, true}) {
    StoreBytes store(bytes_);
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
