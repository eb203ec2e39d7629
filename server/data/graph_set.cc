#include "data/graph_set.h"

#include <cstring>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/format.h"
#include "data/summary_json.h"

namespace permafrost::data {
namespace {

constexpr SectionKind KindOf(Split split) {
  return static_cast<SectionKind>(static_cast<uint32_t>(SectionKind::kTrainGraphs) + static_cast<uint32_t>(split));
}

// "field: is A, expected B".
template <class A, class B>
absl::Status Mismatch(std::string_view field, const A& is, const B& expected) {
  return absl::DataLossError(absl::StrCat(AbslView(field), ": is ", is, ", expected ", expected));
}

std::string SectionField(SectionKind kind, std::string_view field) {
  return absl::StrCat("section ", AbslView(kSectionNames.Name(kind)), ": ", AbslView(field));
}

class MappedGraphSet final : public GraphSet {
 public:
  explicit MappedGraphSet(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}

  // Checks header, table and summary; errors lack the file's name.
  absl::Status Init() {
    PF_RETURN_IF_ERROR(ReadHeader());
    PF_RETURN_IF_ERROR(ReadTable());
    return ReadSummary();
  }

  const GraphSetSummary& summary() const override { return summary_; }

  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override {
    return Verified<uint64_t>(SectionKind::kNodeOffsets,
                              [this](std::span<const uint64_t> o) { return CheckOffsets(o, header_.nodes); });
  }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override {
    return Verified<uint64_t>(SectionKind::kEdgeOffsets,
                              [this](std::span<const uint64_t> o) { return CheckOffsets(o, header_.edges); });
  }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override {
    return EdgeEnds(SectionKind::kEdgeSource, false);
  }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override {
    return EdgeEnds(SectionKind::kEdgeTarget, true);
  }
  absl::StatusOr<FeatureTable> node_features() const override { return Features(SectionKind::kNodeFeatures); }
  absl::StatusOr<FeatureTable> edge_features() const override { return Features(SectionKind::kEdgeFeatures); }
  absl::StatusOr<std::span<const float>> labels() const override { return Verified<float>(SectionKind::kLabels); }
  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override {
    return Verified<uint32_t>(KindOf(split), [this](std::span<const uint32_t> ids) { return CheckGraphIds(ids); });
  }
  absl::Status CheckIntact() const override {
    const absl::Status status = file_->CheckIntact();
    return status.ok() ? status : absl::DataLossError(absl::StrCat(status.message(), "; import it again"));
  }
  uint64_t mapped_bytes() const override { return file_->size(); }

 private:
  // A section's place, and what its first reader found.
  struct Section {
    SectionEntry entry{};  // entry.bytes 0 and entry.width 0 when absent
    bool present = false;
    mutable absl::once_flag once;
    mutable absl::Status status;
  };

  const Section& At(SectionKind kind) const { return sections_[static_cast<size_t>(kind) - 1]; }

  absl::Status ReadHeader() {
    const uint64_t size = file_->size();
    if (size < sizeof(FileHeader)) {
      return Mismatch("file length", size, absl::StrCat("at least the header's ", sizeof(FileHeader)));
    }
    std::memcpy(&header_, file_->data(), sizeof header_);
    if (header_.magic != kStoreMagic) return absl::DataLossError("magic: not a Permafrost graph store");
    if (header_.endianness != kStoreEndianness) {
      return absl::DataLossError("endianness: written by a machine of the other byte order, or damaged");
    }
    if (header_.version != kStoreVersion) return Mismatch("version", header_.version, kStoreVersion);
    if (header_.file_bytes != size)
      return Mismatch("file length", size, absl::StrCat("the header's ", header_.file_bytes));
    if (header_.section_count > kSectionKinds) {
      return Mismatch("section_count", header_.section_count, absl::StrCat("at most ", kSectionKinds));
    }
    const uint64_t table_bytes = header_.section_count * sizeof(SectionEntry);
    if (size - sizeof(FileHeader) < table_bytes) {
      return Mismatch("file length", size, absl::StrCat("room for ", header_.section_count, " section entries"));
    }
    StreamHash hash;
    hash.Update(file_->data(), offsetof(FileHeader, checksum));
    hash.Update(file_->data() + sizeof(FileHeader), table_bytes);
    if (hash.Digest() != header_.checksum) {
      return Mismatch("header checksum", HashHex(hash.Digest()), HashHex(header_.checksum));
    }
    // Graph ids are uint32; the bound also keeps graphs + 1 from wrapping.
    if (header_.graphs > UINT32_MAX) return Mismatch("graphs", header_.graphs, absl::StrCat("at most ", UINT32_MAX));
    return absl::OkStatus();
  }

  absl::Status ReadTable() {
    uint64_t end = sizeof(FileHeader) + header_.section_count * sizeof(SectionEntry);
    for (uint32_t i = 0; i < header_.section_count; ++i) {
      SectionEntry entry;
      std::memcpy(&entry, file_->data() + sizeof(FileHeader) + i * sizeof entry, sizeof entry);
      const auto kind = static_cast<uint32_t>(entry.kind);
      if (kind < 1 || kind > kSectionKinds) {
        return Mismatch(absl::StrCat("section entry ", i, ": kind"), kind, absl::StrCat("1..", kSectionKinds));
      }
      Section& section = sections_[kind - 1];
      if (section.present) return absl::DataLossError(SectionField(entry.kind, "stands twice in the table"));
      PF_RETURN_IF_ERROR(CheckEntry(entry, end));
      PF_RETURN_IF_ERROR(CheckGap(entry, end));
      section.entry = entry;
      section.present = true;
      end = entry.offset + entry.bytes;
    }
    if (end != file_->size()) return Mismatch("file length", file_->size(), absl::StrCat("the sections' end, ", end));
    for (const auto& [kind, name] : kSectionNames.rows) {
      const bool optional = kind == SectionKind::kNodeFeatures || kind == SectionKind::kEdgeFeatures;
      if (!optional && !At(kind).present) return absl::DataLossError(SectionField(kind, "is missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckEntry(const SectionEntry& entry, uint64_t previous_end) const {
    const auto field = [&entry](std::string_view name) { return SectionField(entry.kind, name); };
    const auto check_type = [&](ElementType want) {
      return entry.type == want ? absl::OkStatus()
                                : Mismatch(field("type"), AbslView(kElementTypeNames.Name(entry.type)),
                                           AbslView(kElementTypeNames.Name(want)));
    };
    const auto check_number = [&](std::string_view name, uint64_t is, uint64_t want) {
      return is == want ? absl::OkStatus() : Mismatch(field(name), is, want);
    };
    switch (entry.kind) {
      case SectionKind::kSummary:
        PF_RETURN_IF_ERROR(check_type(ElementType::kBytes));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        break;
      case SectionKind::kNodeOffsets:
      case SectionKind::kEdgeOffsets:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint64));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.graphs + 1));
        break;
      case SectionKind::kEdgeSource:
      case SectionKind::kEdgeTarget:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.edges));
        break;
      case SectionKind::kNodeFeatures:
      case SectionKind::kEdgeFeatures:
        if (entry.type != ElementType::kInt32) PF_RETURN_IF_ERROR(check_type(ElementType::kFloat32));
        if (entry.width == 0) return Mismatch(field("width"), 0, "at least 1");
        PF_RETURN_IF_ERROR(
            check_number("rows", entry.rows, entry.kind == SectionKind::kNodeFeatures ? header_.nodes : header_.edges));
        break;
      case SectionKind::kLabels:
        PF_RETURN_IF_ERROR(check_type(ElementType::kFloat32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, header_.targets));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.targets == 0 ? 0 : header_.graphs));
        break;
      case SectionKind::kTrainGraphs:
      case SectionKind::kValidGraphs:
      case SectionKind::kTestGraphs:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        if (entry.rows > header_.graphs) {
          return Mismatch(field("rows"), entry.rows, absl::StrCat("at most ", header_.graphs));
        }
        break;
    }
    PF_RETURN_IF_ERROR(check_number("offset", entry.offset, AlignSection(previous_end)));
    // Divisions, since a product of damaged counts may wrap.
    const uint64_t row_bytes = entry.width * ElementBytes(entry.type);
    const uint64_t size = file_->size();
    if (entry.offset > size || entry.bytes > size - entry.offset) {
      return Mismatch(field("bytes"), entry.bytes, absl::StrCat("at most the rest of a file of ", size));
    }
    if (row_bytes == 0 ? entry.bytes != 0 : (entry.bytes % row_bytes != 0 || entry.bytes / row_bytes != entry.rows)) {
      return Mismatch(field("bytes"), entry.bytes, absl::StrCat(entry.rows, " rows of ", row_bytes));
    }
    return absl::OkStatus();
  }

  // No checksum covers the bytes between sections, so they hold nothing.
  absl::Status CheckGap(const SectionEntry& entry, uint64_t previous_end) const {
    for (uint64_t at = previous_end; at < entry.offset; ++at) {
      if (file_->data()[at] != std::byte{0}) return Mismatch(SectionField(entry.kind, "gap before it"), "not zero", 0);
    }
    return absl::OkStatus();
  }

  absl::Status ReadSummary() {
    const Section& section = At(SectionKind::kSummary);
    PF_RETURN_IF_ERROR(CheckChecksum(section));
    const auto text = Span<char>(section);
    auto parsed = SummaryFromJson(std::string_view(text.data(), text.size()));
    if (!parsed.ok()) return Annotate(parsed.status(), "section summary");
    summary_ = *std::move(parsed);
    summary_.store_bytes = file_->size();
    const struct {
      std::string_view field;
      int64_t is;
      uint64_t want;
    } kCounts[] = {
        {"all.graphs", summary_.all.graphs, header_.graphs},
        {"all.nodes", summary_.all.nodes, header_.nodes},
        {"all.edges", summary_.all.edges, header_.edges},
        {"num_targets", summary_.num_targets, header_.targets},
        {"node_features.width", summary_.node_features.width, At(SectionKind::kNodeFeatures).entry.width},
        {"edge_features.width", summary_.edge_features.width, At(SectionKind::kEdgeFeatures).entry.width},
        {"splits.train.graphs", summary_.splits[0].graphs, At(SectionKind::kTrainGraphs).entry.rows},
        {"splits.valid.graphs", summary_.splits[1].graphs, At(SectionKind::kValidGraphs).entry.rows},
        {"splits.test.graphs", summary_.splits[2].graphs, At(SectionKind::kTestGraphs).entry.rows},
    };
    for (const auto& c : kCounts) {
      if (!std::in_range<uint64_t>(c.is) || static_cast<uint64_t>(c.is) != c.want) {
        return Mismatch(SectionField(SectionKind::kSummary, c.field), c.is, c.want);
      }
    }
    for (const auto& [kind, features] : {std::pair(SectionKind::kNodeFeatures, &summary_.node_features),
                                         std::pair(SectionKind::kEdgeFeatures, &summary_.edge_features)}) {
      if (features->type != TypeOf(At(kind))) {
        return Mismatch(SectionField(kind, "type in the summary"), AbslView(kDataTypeNames.Name(features->type)),
                        AbslView(kDataTypeNames.Name(TypeOf(At(kind)))));
      }
    }
    return absl::OkStatus();
  }

  static DataType TypeOf(const Section& section) {
    if (!section.present) return DataType::kNone;
    return section.entry.type == ElementType::kInt32 ? DataType::kInt32 : DataType::kFloat32;
  }

  template <class T>
  std::span<const T> Span(const Section& section) const {
    return {reinterpret_cast<const T*>(file_->data() + section.entry.offset), section.entry.bytes / sizeof(T)};
  }

  absl::Status CheckChecksum(const Section& section) const {
    const uint64_t is = Hash64(file_->data() + section.entry.offset, section.entry.bytes);
    if (is == section.entry.checksum) return absl::OkStatus();
    return Mismatch(SectionField(section.entry.kind, "checksum"), HashHex(is), HashHex(section.entry.checksum));
  }

  // The section, after its checksum and `check` held at its first touch; the first finding is kept for all.
  template <class T, class Check>
  absl::StatusOr<std::span<const T>> Verified(SectionKind kind, Check check) const {
    const Section& section = At(kind);
    absl::call_once(section.once, [&] {
      absl::Status status = CheckChecksum(section);
      if (status.ok()) status = Annotate(check(Span<T>(section)), SectionField(kind, "content"));
      if (!status.ok()) section.status = Annotate(status, file_->path().string());
      // Rather than what reading a changed file came upon.
      if (const absl::Status intact = CheckIntact(); !intact.ok()) section.status = intact;
    });
    PF_RETURN_IF_ERROR(section.status);
    return Span<T>(section);
  }
  template <class T>
  absl::StatusOr<std::span<const T>> Verified(SectionKind kind) const {
    return Verified<T>(kind, [](std::span<const T>) { return absl::OkStatus(); });
  }

  absl::StatusOr<FeatureTable> Features(SectionKind kind) const {
    const Section& section = At(kind);
    if (!section.present) return FeatureTable{};
    FeatureTable table{.type = TypeOf(section), .width = section.entry.width, .ints = {}, .floats = {}};
    if (table.type == DataType::kInt32) {
      PF_ASSIGN_OR_RETURN(table.ints, Verified<int32_t>(kind));
    } else {
      PF_ASSIGN_OR_RETURN(table.floats, Verified<float>(kind));
    }
    return table;
  }

  static absl::Status CheckOffsets(std::span<const uint64_t> offsets, uint64_t total) {
    if (offsets.front() != 0) return Mismatch("first offset", offsets.front(), 0);
    if (offsets.back() != total) return Mismatch("last offset", offsets.back(), total);
    for (size_t g = 1; g < offsets.size(); ++g) {
      if (offsets[g] < offsets[g - 1]) {
        return Mismatch(absl::StrCat("offset ", g), offsets[g], absl::StrCat("at least ", offsets[g - 1]));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<const uint32_t>> EdgeEnds(SectionKind kind, bool rising) const {
    PF_ASSIGN_OR_RETURN(const auto nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto edges, edge_offsets());
    return Verified<uint32_t>(kind, [nodes, edges, rising](std::span<const uint32_t> ends) {
      return CheckEdgeEnds(nodes, edges, ends, rising);
    });
  }

  static absl::Status CheckEdgeEnds(std::span<const uint64_t> nodes, std::span<const uint64_t> edges,
                                    std::span<const uint32_t> ends, bool rising) {
    for (size_t g = 0; g + 1 < nodes.size(); ++g) {
      const uint64_t count = nodes[g + 1] - nodes[g];
      if (edges[g + 1] > ends.size()) {  // it was verified: the file changes under us
        return Mismatch(absl::StrCat("edge offset ", g + 1), edges[g + 1], absl::StrCat("at most ", ends.size()));
      }
      for (uint64_t e = edges[g]; e < edges[g + 1]; ++e) {
        if (ends[e] >= count) {
          return absl::DataLossError(
              absl::StrCat("edge ", e, " ends at node ", ends[e], " of graph ", g, ", which has ", count, " nodes"));
        }
        if (rising && e > edges[g] && ends[e] < ends[e - 1]) {
          return absl::DataLossError(absl::StrCat("edge ", e, " of graph ", g, " is not sorted by target"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckGraphIds(std::span<const uint32_t> ids) const {
    for (const uint32_t id : ids) {
      if (id >= header_.graphs) return Mismatch("graph id", id, absl::StrCat("below ", header_.graphs));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<MappedFile> file_;
  FileHeader header_{};
  std::array<Section, kSectionKinds> sections_;  // by kind - 1
  GraphSetSummary summary_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const GraphSet>> GraphSet::Open(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFileName;
  PF_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  auto set = std::make_shared<MappedGraphSet>(std::move(file));
  const absl::Status status = set->Init();
  PF_RETURN_IF_ERROR(set->CheckIntact());
  if (!status.ok()) return Annotate(status, path.string());
  return set;
}

}  // namespace permafrost::data
