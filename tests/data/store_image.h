// The bytes of a small store, for tests that damage them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "data/store/block_guard.h"
#include "data/store/format.h"

namespace permafrost::data {

class StoreImage {
 public:
  explicit StoreImage(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string& bytes() { return bytes_; }
  FileHeader header() const { return Load<FileHeader>(0); }
  void set_header(const FileHeader& header) { std::memcpy(bytes_.data(), &header, sizeof header); }
  bool Has(SectionKind kind) const { return EntryOffset(kind) != 0; }
  SectionEntry entry(SectionKind kind) const { return Load<SectionEntry>(EntryOffset(kind)); }
  void set_entry(SectionKind kind, const SectionEntry& entry) {
    std::memcpy(bytes_.data() + EntryOffset(kind), &entry, sizeof entry);
  }
  // Returns the section table as it stands, without checking it.
  std::vector<SectionEntry> entries() const {
    std::vector<SectionEntry> entries(std::min<size_t>(header().section_count, kSectionKinds));
    for (size_t i = 0; i < entries.size(); ++i)
      entries[i] = Load<SectionEntry>(sizeof(FileHeader) + i * sizeof entries[i]);
    return entries;
  }
  template <class T>
  void SetElement(SectionKind kind, size_t index, T value) {
    std::memcpy(bytes_.data() + entry(kind).offset + index * sizeof(T), &value, sizeof value);
  }
  // Recomputes all checksums, so that they are right again.
  void Seal() {
    std::vector<uint64_t> checksums;
    for (const SectionEntry& e : entries()) {
      if (e.kind == SectionKind::kBlockChecksums || !InFile(e)) continue;
      for (uint64_t at = 0; at < e.bytes; at += e.block_bytes) {
        checksums.push_back(Hash64(bytes_.data() + e.offset + at, std::min<uint64_t>(e.bytes - at, e.block_bytes)));
      }
    }
    if (Has(SectionKind::kBlockChecksums)) {
      SectionEntry table = entry(SectionKind::kBlockChecksums);
      std::memcpy(bytes_.data() + table.offset, checksums.data(),
                  std::min<size_t>(table.bytes, checksums.size() * sizeof(uint64_t)));
      table.checksum = Hash64(bytes_.data() + table.offset, table.bytes);
      set_entry(SectionKind::kBlockChecksums, table);
    }
    FileHeader h = header();
    StreamHash hash;
    hash.Update(bytes_.data(), offsetof(FileHeader, checksum));
    hash.Update(bytes_.data() + sizeof h,
                std::min<size_t>(h.section_count * sizeof(SectionEntry), bytes_.size() - sizeof h));
    h.checksum = hash.Digest();
    set_header(h);
  }
  // Returns the same sections in the layout of an older version. Version 1 is for sets of graphs only.
  std::string AsVersion(uint32_t version) const {
    std::vector<SectionEntry> table = entries();
    if (version == 1)
      std::erase_if(table, [](const SectionEntry& e) { return e.kind == SectionKind::kBlockChecksums; });
    const uint64_t header_bytes = version == 1 ? kHeaderBytesV1 : sizeof(FileHeader);
    std::string out(version == 1 ? header_bytes + table.size() * kEntryBytesV2 : kFirstSection, '\0');
    std::vector<uint64_t> checksums;
    for (SectionEntry& e : table) {
      std::string section = PackedRows(e);
      e.offset = AlignSection(out.size(), BlockGuard::kBlockBytes);
      if (e.kind == SectionKind::kBlockChecksums) {
        section.assign(reinterpret_cast<const char*>(checksums.data()), checksums.size() * sizeof(uint64_t));
        e.rows = checksums.size();
      }
      e.bytes = section.size();
      for (uint64_t at = 0; at < e.bytes; at += BlockGuard::kBlockBytes) {
        checksums.push_back(Hash64(section.data() + at, std::min<uint64_t>(e.bytes - at, BlockGuard::kBlockBytes)));
      }
      if (version == 1 || e.kind == SectionKind::kBlockChecksums) e.checksum = Hash64(section);
      out.resize(e.offset);
      out += section;
    }
    FileHeader h = header();
    h.version = version;
    h.file_bytes = out.size();
    h.section_count = static_cast<uint32_t>(table.size());
    const size_t hashed = header_bytes - sizeof(uint64_t);
    std::memcpy(out.data(), &h, hashed);
    for (size_t i = 0; i < table.size(); ++i) {
      std::memcpy(out.data() + header_bytes + i * kEntryBytesV2, &table[i], kEntryBytesV2);
    }
    StreamHash hash;
    hash.Update(out.data(), hashed);
    hash.Update(out.data() + header_bytes, table.size() * kEntryBytesV2);
    const uint64_t checksum = hash.Digest();
    std::memcpy(out.data() + hashed, &checksum, sizeof checksum);
    return out;
  }

 private:
  template <class T>
  T Load(size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  // Returns the rows of a section without the gaps between its groups.
  std::string PackedRows(const SectionEntry& e) const {
    if (e.groups.rows == 0) return bytes_.substr(e.offset, e.bytes);
    const uint64_t row_bytes = e.width * ElementBytes(e.type);
    std::string rows;
    for (uint64_t row = 0; row < e.rows; ++row) {
      rows += bytes_.substr(e.offset + e.groups.OffsetOf(row, row_bytes), row_bytes);
    }
    return rows;
  }
  bool InFile(const SectionEntry& e) const { return e.offset <= bytes_.size() && e.bytes <= bytes_.size() - e.offset; }
  size_t EntryOffset(SectionKind kind) const {
    for (size_t i = 0; i < kSectionKinds; ++i) {
      const size_t at = sizeof(FileHeader) + i * sizeof(SectionEntry);
      if (Load<SectionEntry>(at).kind == kind) return at;
    }
    return 0;
  }
  std::string bytes_;
};

}  // namespace permafrost::data
