// The store's file format, version 3: one container for many small graphs (graphs.pfg) and for one large graph
// (graph.pfg).
//   FileHeader | SectionEntry[section_count] | zeros up to kFirstSection | sections, each at the next multiple of 64
// Numbers are little-endian as the machine that wrote them; `endianness` refuses a machine that reads them otherwise.
// Sections stand in the table's order; gaps between them are zero. The last one ends the file and is block_checksums:
// the XXH3-64 of every `block_bytes` of every other section (its last block being shorter), in the table's order. A
// section of small blocks begins at a page, so that a page of it can be read and verified alone.
// Version 2, still read: entries end before `block_bytes` (kEntryBytesV2); all blocks are BlockGuard::kBlockBytes.
// Version 1, still read: a graph set without `layout` and `block_bytes` (kHeaderBytesV1), sections right behind the
// table, no block_checksums, and each SectionEntry::checksum the XXH3-64 of the section's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/enum_names.h"
#include "base/string_view.h"
#include "data/store/types.h"

namespace permafrost::data {

// Places the rows of a table so that reading a row takes as few pages as possible. Rows lie in groups, one after the
// other, and each group begins at a page. Threads: pure functions.

// Disks and page caches read at least this much. Sections of row groups have a checksum for each page.
inline constexpr uint64_t kPageBytes = 4096;

struct RowGroups {
  uint32_t rows = 0;   // of a group; 0: rows follow each other without gaps
  uint32_t bytes = 0;  // from one group to the next, a multiple of kPageBytes; 0 with `rows`
  bool operator==(const RowGroups&) const = default;

  // Returns where a row of `row_bytes` begins, counted from the table's begin.
  uint64_t OffsetOf(uint64_t row, uint64_t row_bytes) const {
    if (rows == 0) return row * row_bytes;
    if (rows == 1) return row * bytes;
    return row / rows * bytes + row % rows * row_bytes;
  }
  // Returns the bytes of a table of `count` rows, without padding after the last row.
  uint64_t TotalBytes(uint64_t count, uint64_t row_bytes) const {
    return count == 0 ? 0 : OffsetOf(count - 1, row_bytes) + row_bytes;
  }
};

// Returns the groups in which no row lies on more pages than its length requires. Each row follows the one before
// directly, or begins at the next page. Returns no groups if more than a fifth of the table would be gaps, or if rows
// without gaps lie this well anyway.
RowGroups GroupsFor(uint64_t row_bytes);

// Returns the pages that a read of one row touches, as a mean over the rows.
double PagesOfRow(const RowGroups& groups, uint64_t row_bytes);

inline constexpr std::array<char, 8> kStoreMagic = {'P', 'F', 'G', 'R', 'A', 'P', 'H', 'S'};
inline constexpr uint32_t kStoreVersion = 3;
inline constexpr uint32_t kStoreEndianness = 0x01020304;
inline constexpr uint32_t kOtherEndianness = 0x04030201;  // as a machine of the other byte order reads and writes it
inline constexpr uint64_t kSectionAlignment = 64;
// The header and the table have the first page to themselves, so that sections can be written before either is known.
inline constexpr uint64_t kFirstSection = 4096;

enum class StoreLayout : uint32_t { kGraphSet = 1, kGraph = 2 };
inline constexpr EnumNames<StoreLayout, 2> kStoreLayoutNames{
    {{{StoreLayout::kGraphSet, "graph_set"}, {StoreLayout::kGraph, "graph"}}}};

struct FileHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t endianness;
  uint64_t file_bytes;
  uint64_t graphs;  // 1 in a graph's
  uint64_t nodes;
  uint64_t edges;
  uint32_t targets;
  uint32_t section_count;
  StoreLayout layout;
  uint32_t block_bytes;  // BlockGuard::kBlockBytes, the largest of a section's
  // XXH3-64 of the header up to this field, followed by the section table.
  uint64_t checksum;
};
static_assert(sizeof(FileHeader) == 72 && offsetof(FileHeader, checksum) == 64);
// A header of version 1 is equal up to `layout`; there it has the checksum, and ends.
inline constexpr uint64_t kHeaderBytesV1 = 64;
static_assert(offsetof(FileHeader, layout) + sizeof(uint64_t) == kHeaderBytesV1);

enum class ElementType : uint32_t {
  kBytes = 1,
  kInt32 = 2,
  kFloat32 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kBfloat16 = 7,
  kUint8 = 8,
  kInt64 = 9,
  kInt8 = 10,
};
inline constexpr EnumNames<ElementType, 10> kElementTypeNames{{{{ElementType::kBytes, "bytes"},
                                                                {ElementType::kInt32, "int32"},
                                                                {ElementType::kFloat32, "float32"},
                                                                {ElementType::kUint32, "uint32"},
                                                                {ElementType::kUint64, "uint64"},
                                                                {ElementType::kFloat16, "float16"},
                                                                {ElementType::kBfloat16, "bfloat16"},
                                                                {ElementType::kUint8, "uint8"},
                                                                {ElementType::kInt64, "int64"},
                                                                {ElementType::kInt8, "int8"}}}};

// 0 for a value that is no ElementType.
constexpr uint64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kBytes:
    case ElementType::kUint8:
    case ElementType::kInt8:
      return 1;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
    case ElementType::kUint32:
      return 4;
    case ElementType::kUint64:
    case ElementType::kInt64:
      return 8;
  }
  return 0;
}

// [rows, width]; width 1 where none is named.
enum class SectionKind : uint32_t {
  kSummary = 1,       // JSON of GraphSetSummary or GraphSummary, [bytes]
  kNodeOffsets = 2,   // graph set: uint64 [graphs + 1]
  kEdgeOffsets = 3,   // graph set: uint64 [graphs + 1]
  kEdgeSource = 4,    // graph set: uint32 [edges]
  kEdgeTarget = 5,    // graph set: uint32 [edges]
  kNodeFeatures = 6,  // [nodes, width]; graph set: int32 or float32; graph: any type of DenseFeatures
  kEdgeFeatures = 7,  // [edges, width], the same; graph: any rows where in_edge_ids says which is whose
  kLabels = 8,        // float32 [graphs, targets]; graph: [nodes, targets], absent without targets
  kTrainGraphs = 9,   // graph set: uint32 [graphs of the split]
  kValidGraphs = 10,  // uint32
  kTestGraphs = 11,   // uint32
  // The kinds from here on belong to one large graph; all may be absent but in_offsets and in_neighbors.
  kInOffsets = 12,           // uint64 [nodes + 1]
  kInNeighbors = 13,         // uint32 [edges] < nodes
  kInWeights = 14,           // float32 [edges]
  kInTimestamps = 15,        // int64 [edges]
  kInEdgeIds = 16,           // uint64 [edges] < rows of edge_features
  kOutOffsets = 17,          // as in_*; absent where the graph is symmetric or was asked to have none
  kOutNeighbors = 18,        //
  kOutWeights = 19,          //
  kOutTimestamps = 20,       //
  kOutEdgeIds = 21,          //
  kNodeFeatureOffsets = 22,  // sparse: uint64 [nodes + 1]
  kNodeFeatureColumns = 23,  // uint32 [nonzeros] < the summary's node_features.width
  kNodeFeatureValues = 24,   // float32 [nonzeros]; absent: all are 1
  kTrainNodes = 25,          // uint32 [nodes of the split] < nodes
  kValidNodes = 26,          // uint32
  kTestNodes = 27,           // uint32
  kNodeNumbers = 28,         // uint64 [nodes]
  kNodeNameOffsets = 29,     // uint64 [nodes + 1]
  kNodeNameText = 30,        // bytes
  kBlockChecksums = 31,      // uint64; see above
  kNodeFeatureScales = 32,   // float32 [1, width]: what int8 node_features are multiples of; absent for other types
  // Links divided by the source: all three, or none.
  kTrainLinks = 33,  // uint32 [links, 2] < nodes: source, target
  kValidLinks = 34,  // uint32
  kTestLinks = 35,   // uint32
  // uint32 [links, targets of each] < nodes, or [pairs, 2]: source, target; the summary says which. May be absent.
  kValidNegatives = 36,
  kTestNegatives = 37,
  kNodeTimes = 38,  // int64 [nodes]: when each node is asked about; may be absent
  // JSON of Categories, [bytes]: the tables of columns whose categories the import numbered, and of those that it took
  // over as they stand, which say only what the columns hold anyway. Absent where there are none.
  kNumberedCategories = 39,
  kSeenCategories = 40,
  kPositions = 41,  // float32 [nodes, width], width 1..kMaxPositionColumns; may be absent
};
inline constexpr std::size_t kSectionKinds = 41;
inline constexpr EnumNames<SectionKind, kSectionKinds> kSectionNames{
    {{{SectionKind::kSummary, "summary"},
      {SectionKind::kNodeOffsets, "node_offsets"},
      {SectionKind::kEdgeOffsets, "edge_offsets"},
      {SectionKind::kEdgeSource, "edge_source"},
      {SectionKind::kEdgeTarget, "edge_target"},
      {SectionKind::kNodeFeatures, "node_features"},
      {SectionKind::kEdgeFeatures, "edge_features"},
      {SectionKind::kLabels, "labels"},
      {SectionKind::kTrainGraphs, "train_graphs"},
      {SectionKind::kValidGraphs, "valid_graphs"},
      {SectionKind::kTestGraphs, "test_graphs"},
      {SectionKind::kInOffsets, "in_offsets"},
      {SectionKind::kInNeighbors, "in_neighbors"},
      {SectionKind::kInWeights, "in_weights"},
      {SectionKind::kInTimestamps, "in_timestamps"},
      {SectionKind::kInEdgeIds, "in_edge_ids"},
      {SectionKind::kOutOffsets, "out_offsets"},
      {SectionKind::kOutNeighbors, "out_neighbors"},
      {SectionKind::kOutWeights, "out_weights"},
      {SectionKind::kOutTimestamps, "out_timestamps"},
      {SectionKind::kOutEdgeIds, "out_edge_ids"},
      {SectionKind::kNodeFeatureOffsets, "node_feature_offsets"},
      {SectionKind::kNodeFeatureColumns, "node_feature_columns"},
      {SectionKind::kNodeFeatureValues, "node_feature_values"},
      {SectionKind::kTrainNodes, "train_nodes"},
      {SectionKind::kValidNodes, "valid_nodes"},
      {SectionKind::kTestNodes, "test_nodes"},
      {SectionKind::kNodeNumbers, "node_numbers"},
      {SectionKind::kNodeNameOffsets, "node_name_offsets"},
      {SectionKind::kNodeNameText, "node_name_text"},
      {SectionKind::kBlockChecksums, "block_checksums"},
      {SectionKind::kNodeFeatureScales, "node_feature_scales"},
      {SectionKind::kTrainLinks, "train_links"},
      {SectionKind::kValidLinks, "valid_links"},
      {SectionKind::kTestLinks, "test_links"},
      {SectionKind::kValidNegatives, "valid_negatives"},
      {SectionKind::kTestNegatives, "test_negatives"},
      {SectionKind::kNodeTimes, "node_times"},
      {SectionKind::kNumberedCategories, "numbered_categories"},
      {SectionKind::kSeenCategories, "seen_categories"},
      {SectionKind::kPositions, "positions"}}}};

struct SectionEntry {
  SectionKind kind;
  ElementType type;
  uint32_t width;     // elements a row
  uint32_t reserved;  // 0
  uint64_t rows;
  uint64_t offset;    // from the start of the file
  uint64_t bytes;     // groups.TotalBytes(rows, width * ElementBytes(type))
  uint64_t checksum;  // of block_checksums: XXH3-64 of those bytes; of others 0, their blocks' stand there
  // Bytes that a checksum stands for: kPageBytes or BlockGuard::kBlockBytes.
  uint32_t block_bytes;
  RowGroups groups;    // with blocks of kPageBytes only; gaps are zero
  uint32_t reserved2;  // 0
};
static_assert(sizeof(SectionEntry) == 64);
inline constexpr uint64_t kEntryBytesV2 = 48;
static_assert(offsetof(SectionEntry, block_bytes) == kEntryBytesV2);
static_assert(sizeof(FileHeader) + kSectionKinds * sizeof(SectionEntry) <= kFirstSection);

// Returns where a section that comes behind `offset` begins.
constexpr uint64_t AlignSection(uint64_t offset, uint32_t block_bytes) {
  const uint64_t alignment = block_bytes == kPageBytes ? kPageBytes : kSectionAlignment;
  return (offset + alignment - 1) / alignment * alignment;
}

// Translates between the types of features in a store (ElementType) and to its users (DataType). Threads: pure.
inline constexpr std::array<std::pair<DataType, ElementType>, 7> kFeatureTypes{{
    {DataType::kInt32, ElementType::kInt32},
    {DataType::kFloat32, ElementType::kFloat32},
    {DataType::kFloat16, ElementType::kFloat16},
    {DataType::kBfloat16, ElementType::kBfloat16},
    {DataType::kUint8, ElementType::kUint8},
    {DataType::kInt64, ElementType::kInt64},
    {DataType::kInt8, ElementType::kInt8},
}};

// kNone for what features are not made of.
constexpr DataType DataTypeOf(ElementType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (element == type) return data;
  }
  return DataType::kNone;
}
// The element type of a dense type; kBytes for kNone and kSparse.
constexpr ElementType ElementTypeOf(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return element;
  }
  return ElementType::kBytes;
}
// 0 for kNone and kSparse.
constexpr uint64_t ElementBytes(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return ElementBytes(element);
  }
  return 0;
}

// Errors of a store's reader that say what does not add up. Threads: pure.

// "field: is A, expected B".
template <class A, class B>
absl::Status Mismatch(std::string_view field, const A& is, const B& expected) {
  return absl::DataLossError(absl::StrCat(AbslView(field), ": is ", is, ", expected ", expected));
}

inline std::string SectionField(SectionKind kind, std::string_view field) {
  return absl::StrCat("section ", AbslView(kSectionNames.Name(kind)), ": ", AbslView(field));
}

}  // namespace permafrost::data
