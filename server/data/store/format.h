// The store's file format, version 3. One container format serves sets of small graphs (graphs.pfg) and single large
// graphs (graph.pfg):
//   FileHeader | SectionEntry[section_count] | zeros up to kFirstSection | sections, each at the next multiple of 64
// Numbers are little-endian, as on the machine that wrote them. A reader with the other byte order recognises the
// file by the field `endianness` and refuses it.
// Sections are in the order of the table, and the gaps between them are zero. The last section, block_checksums, ends
// the file. It holds the XXH3-64 of each block of all other sections, in the order of the table. The field
// `block_bytes` of a section's entry is the length of its blocks; the last block may be shorter. A section whose
// blocks are pages begins at a page, so that each of its pages can be read and verified alone.
// Version 2 can still be read. Its section entries end before the field `block_bytes` (kEntryBytesV2), and each of
// its blocks has BlockGuard::kBlockBytes bytes.
// Version 1 can still be read. It holds a graph set, and its header lacks `layout` and `block_bytes`
// (kHeaderBytesV1). Its sections follow the table directly, it has no block_checksums, and each
// SectionEntry::checksum is the XXH3-64 of the section's bytes.
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

// The placement of a table's rows, such that reading a row touches as few pages as possible. Rows form groups that
// lie one after the other, and each group begins at a page. Threads: pure functions.

// Disks and page caches read at least this many bytes at once. A section whose rows are read in random order has a
// checksum for each page.
inline constexpr uint64_t kPageBytes = 4096;

struct RowGroups {
  uint32_t rows = 0;   // rows in a group; 0 if rows follow each other without gaps
  uint32_t bytes = 0;  // distance from one group to the next, a multiple of kPageBytes; 0 if `rows` is 0
  bool operator==(const RowGroups&) const = default;

  // Returns the offset of a row in the table, given the length of a row.
  uint64_t OffsetOf(uint64_t row, uint64_t row_bytes) const {
    if (rows == 0) return row * row_bytes;
    if (rows == 1) return row * bytes;
    return row / rows * bytes + row % rows * row_bytes;
  }
  // Returns the length of a table of `count` rows, without padding after the last row.
  uint64_t TotalBytes(uint64_t count, uint64_t row_bytes) const {
    return count == 0 ? 0 : OffsetOf(count - 1, row_bytes) + row_bytes;
  }
};

// Returns groups in which each row lies on as few pages as its length allows. Within a group, rows follow each other
// directly. Returns RowGroups() if more than a fifth of the table would be gaps, or if gaps would not lower the
// number of pages per row.
RowGroups GroupsFor(uint64_t row_bytes);

// Returns the mean number of pages that reading one row touches.
double PagesOfRow(const RowGroups& groups, uint64_t row_bytes);

inline constexpr std::array<char, 8> kStoreMagic = {'P', 'F', 'G', 'R', 'A', 'P', 'H', 'S'};
inline constexpr uint32_t kStoreVersion = 3;
inline constexpr uint32_t kStoreEndianness = 0x01020304;
// kStoreEndianness as a machine with the other byte order reads it
inline constexpr uint32_t kOtherEndianness = 0x04030201;
inline constexpr uint64_t kSectionAlignment = 64;
// The first page is kept for the header and the table. Sections can thus be written before these two are known.
inline constexpr uint64_t kFirstSection = 4096;

enum class StoreLayout : uint32_t { kGraphSet = 1, kGraph = 2 };
inline constexpr EnumNames<StoreLayout, 2> kStoreLayoutNames{
    {{{StoreLayout::kGraphSet, "graph_set"}, {StoreLayout::kGraph, "graph"}}}};

struct FileHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t endianness;
  uint64_t file_bytes;
  uint64_t graphs;  // 1 for one large graph
  uint64_t nodes;
  uint64_t edges;
  uint32_t targets;
  uint32_t section_count;
  StoreLayout layout;
  uint32_t block_bytes;  // always BlockGuard::kBlockBytes, the largest block of any section
  // XXH3-64 of all fields before this one and of the section table, in this order.
  uint64_t checksum;
};
static_assert(sizeof(FileHeader) == 72 && offsetof(FileHeader, checksum) == 64);
// A header of version 1 has the fields before `layout`, then the checksum, and nothing after it.
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

// Returns 0 for a value that is no ElementType.
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

// Shapes are [rows, width]. A shape with a single number, [rows], has width 1.
enum class SectionKind : uint32_t {
  kSummary = 1,       // JSON of GraphSetSummary or GraphSummary, [bytes]
  kNodeOffsets = 2,   // graph set: uint64 [graphs + 1]
  kEdgeOffsets = 3,   // graph set: uint64 [graphs + 1]
  kEdgeSource = 4,    // graph set: uint32 [edges]
  kEdgeTarget = 5,    // graph set: uint32 [edges]
  kNodeFeatures = 6,  // [nodes, width]; graph set: int32 or float32; graph: any type of DenseFeatures
  kEdgeFeatures = 7,  // [edges, width], types of kNodeFeatures; graph: any number of rows if in_edge_ids is present
  kLabels = 8,        // float32 [graphs, targets]; graph: [nodes, targets], absent if there are no targets
  kTrainGraphs = 9,   // graph set: uint32 [graphs of the split]
  kValidGraphs = 10,  // uint32
  kTestGraphs = 11,   // uint32
  // The kinds from here to kNodeTimes belong to one large graph, except for kBlockChecksums. Of these kinds, only
  // in_offsets and in_neighbors are required.
  kInOffsets = 12,           // uint64 [nodes + 1]
  kInNeighbors = 13,         // uint32 [edges] < nodes
  kInWeights = 14,           // float32 [edges]
  kInTimestamps = 15,        // int64 [edges]
  kInEdgeIds = 16,           // uint64 [edges] < rows of edge_features
  kOutOffsets = 17,          // out_* are like in_*; absent if the graph is symmetric or was imported without out-edges
  kOutNeighbors = 18,        //
  kOutWeights = 19,          //
  kOutTimestamps = 20,       //
  kOutEdgeIds = 21,          //
  kNodeFeatureOffsets = 22,  // sparse: uint64 [nodes + 1]
  kNodeFeatureColumns = 23,  // uint32 [nonzeros] < the summary's node_features.width
  kNodeFeatureValues = 24,   // float32 [nonzeros]; if absent, all values are 1
  kTrainNodes = 25,          // uint32 [nodes of the split] < nodes
  kValidNodes = 26,          // uint32
  kTestNodes = 27,           // uint32
  kNodeNumbers = 28,         // uint64 [nodes]
  kNodeNameOffsets = 29,     // uint64 [nodes + 1]
  kNodeNameText = 30,        // bytes
  kBlockChecksums = 31,      // uint64; see the top of this file
  // float32 [1, width]: the scale of each column of int8 node_features; absent for other types
  kNodeFeatureScales = 32,
  // Links that the source divided into splits. Either all three sections are present or none.
  kTrainLinks = 33,  // uint32 [links, 2] < nodes: source, target
  kValidLinks = 34,  // uint32
  kTestLinks = 35,   // uint32
  // The negatives of the links, uint32 < nodes; may be absent. The summary says which of two forms they have. One is
  // [links, n]: n negative targets for the source of each link. The other is [pairs, 2]: source, target.
  kValidNegatives = 36,
  kTestNegatives = 37,
  kNodeTimes = 38,  // int64 [nodes]: the seed time of each node; may be absent
  // JSON of Categories, [bytes]. A section without tables is absent. kNumberedCategories has the tables of columns
  // whose categories the import numbered. kSeenCategories has the tables of columns that the import took over
  // unchanged, so it only repeats what the columns hold.
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
  uint32_t width;     // elements in a row
  uint32_t reserved;  // 0
  uint64_t rows;
  uint64_t offset;  // from the start of the file
  uint64_t bytes;   // groups.TotalBytes(rows, width * ElementBytes(type))
  // For block_checksums: the XXH3-64 of its bytes. For other sections 0, since their checksums are in
  // block_checksums.
  uint64_t checksum;
  // Bytes that one checksum covers: kPageBytes or BlockGuard::kBlockBytes.
  uint32_t block_bytes;
  RowGroups groups;    // only if block_bytes is kPageBytes; gaps are zero
  uint32_t reserved2;  // 0
};
static_assert(sizeof(SectionEntry) == 64);
inline constexpr uint64_t kEntryBytesV2 = 48;
static_assert(offsetof(SectionEntry, block_bytes) == kEntryBytesV2);
static_assert(sizeof(FileHeader) + kSectionKinds * sizeof(SectionEntry) <= kFirstSection);

// Returns the offset at which a section with blocks of `block_bytes` begins if the section before it ends at
// `offset`.
constexpr uint64_t AlignSection(uint64_t offset, uint32_t block_bytes) {
  const uint64_t alignment = block_bytes == kPageBytes ? kPageBytes : kSectionAlignment;
  return (offset + alignment - 1) / alignment * alignment;
}

// The two names of a feature's type: ElementType in the file, and DataType for the users of a store. Threads: pure.
inline constexpr std::array<std::pair<DataType, ElementType>, 7> kFeatureTypes{{
    {DataType::kInt32, ElementType::kInt32},
    {DataType::kFloat32, ElementType::kFloat32},
    {DataType::kFloat16, ElementType::kFloat16},
    {DataType::kBfloat16, ElementType::kBfloat16},
    {DataType::kUint8, ElementType::kUint8},
    {DataType::kInt64, ElementType::kInt64},
    {DataType::kInt8, ElementType::kInt8},
}};

// Returns kNone for a type that features cannot have.
constexpr DataType DataTypeOf(ElementType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (element == type) return data;
  }
  return DataType::kNone;
}
// Returns the element type of a dense type, and kBytes for kNone and kSparse.
constexpr ElementType ElementTypeOf(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return element;
  }
  return ElementType::kBytes;
}
// Returns 0 for kNone and kSparse.
constexpr uint64_t ElementBytes(DataType type) {
  for (const auto& [data, element] : kFeatureTypes) {
    if (data == type) return ElementBytes(element);
  }
  return 0;
}

// Errors of a store's reader that name the inconsistent field. Threads: pure.

// Makes the error "field: is A, expected B".
template <class A, class B>
absl::Status Mismatch(std::string_view field, const A& is, const B& expected) {
  return absl::DataLossError(absl::StrCat(AbslView(field), ": is ", is, ", expected ", expected));
}

inline std::string SectionField(SectionKind kind, std::string_view field) {
  return absl::StrCat("section ", AbslView(kSectionNames.Name(kind)), ": ", AbslView(field));
}

}  // namespace permafrost::data
