// The store's file format, version 1.
//   FileHeader | SectionEntry[section_count] | sections, each at the next multiple of 64 bytes, in the table's order
// Numbers are little-endian as the machine that wrote them; `endianness` refuses a machine that reads them otherwise.
// Gaps between sections are zero. The last section ends the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/enum_names.h"

namespace permafrost::data {

inline constexpr std::array<char, 8> kStoreMagic = {'P', 'F', 'G', 'R', 'A', 'P', 'H', 'S'};
inline constexpr uint32_t kStoreVersion = 1;
inline constexpr uint32_t kStoreEndianness = 0x01020304;
inline constexpr uint64_t kSectionAlignment = 64;

struct FileHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t endianness;
  uint64_t file_bytes;
  uint64_t graphs;
  uint64_t nodes;
  uint64_t edges;
  uint32_t targets;
  uint32_t section_count;
  // XXH3-64 of the header up to this field, followed by the section table.
  uint64_t checksum;
};
static_assert(sizeof(FileHeader) == 64 && offsetof(FileHeader, checksum) == 56);

enum class ElementType : uint32_t { kBytes = 1, kInt32 = 2, kFloat32 = 3, kUint32 = 4, kUint64 = 5 };
inline constexpr EnumNames<ElementType, 5> kElementTypeNames{{{{ElementType::kBytes, "bytes"},
                                                               {ElementType::kInt32, "int32"},
                                                               {ElementType::kFloat32, "float32"},
                                                               {ElementType::kUint32, "uint32"},
                                                               {ElementType::kUint64, "uint64"}}}};

// 0 for a value that is no ElementType.
constexpr uint64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kBytes:
      return 1;
    case ElementType::kInt32:
    case ElementType::kFloat32:
    case ElementType::kUint32:
      return 4;
    case ElementType::kUint64:
      return 8;
  }
  return 0;
}

enum class SectionKind : uint32_t {
  kSummary = 1,       // JSON of GraphSetSummary, [bytes]
  kNodeOffsets = 2,   // uint64 [graphs + 1]
  kEdgeOffsets = 3,   // uint64 [graphs + 1]
  kEdgeSource = 4,    // uint32 [edges]
  kEdgeTarget = 5,    // uint32 [edges]
  kNodeFeatures = 6,  // int32 or float32 [nodes, width]; absent without features
  kEdgeFeatures = 7,  // int32 or float32 [edges, width]; absent without features
  kLabels = 8,        // float32 [graphs, targets]
  kTrainGraphs = 9,   // uint32 [graphs of the split]
  kValidGraphs = 10,  // uint32
  kTestGraphs = 11,   // uint32
};
inline constexpr std::size_t kSectionKinds = 11;
inline constexpr EnumNames<SectionKind, kSectionKinds> kSectionNames{{{{SectionKind::kSummary, "summary"},
                                                                       {SectionKind::kNodeOffsets, "node_offsets"},
                                                                       {SectionKind::kEdgeOffsets, "edge_offsets"},
                                                                       {SectionKind::kEdgeSource, "edge_source"},
                                                                       {SectionKind::kEdgeTarget, "edge_target"},
                                                                       {SectionKind::kNodeFeatures, "node_features"},
                                                                       {SectionKind::kEdgeFeatures, "edge_features"},
                                                                       {SectionKind::kLabels, "labels"},
                                                                       {SectionKind::kTrainGraphs, "train_graphs"},
                                                                       {SectionKind::kValidGraphs, "valid_graphs"},
                                                                       {SectionKind::kTestGraphs, "test_graphs"}}}};

struct SectionEntry {
  SectionKind kind;
  ElementType type;
  uint32_t width;     // elements a row
  uint32_t reserved;  // 0
  uint64_t rows;
  uint64_t offset;    // from the start of the file
  uint64_t bytes;     // rows * width * ElementBytes(type)
  uint64_t checksum;  // XXH3-64 of those bytes
};
static_assert(sizeof(SectionEntry) == 48);

constexpr uint64_t AlignSection(uint64_t offset) {
  return (offset + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

}  // namespace permafrost::data
