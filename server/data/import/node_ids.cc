#include "data/import/node_ids.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/import/edge_dialect.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"

namespace permafrost::data {

void NumberTable::Add(std::span<const uint64_t> numbers) {
  constexpr size_t kLeast = size_t{1} << 20;
  pending_.insert(pending_.end(), numbers.begin(), numbers.end());
  // Merges only once there are as many pending numbers as merged ones. So each number is moved O(log n) times.
  if (pending_.size() >= std::max(kLeast, numbers_.size())) Settle();
}

void NumberTable::Settle() {
  std::sort(pending_.begin(), pending_.end());
  pending_.erase(std::unique(pending_.begin(), pending_.end()), pending_.end());
  std::vector<uint64_t> all;
  all.reserve(numbers_.size() + pending_.size());
  std::set_union(numbers_.begin(), numbers_.end(), pending_.begin(), pending_.end(), std::back_inserter(all));
  numbers_ = std::move(all);
  pending_.clear();
}

void NumberTable::Finish() {
  Settle();
  std::vector<uint64_t>().swap(pending_);
  if (numbers_.empty()) return;
  // The most entries of rows_ per number. If rows_ had more holes, a map would take less memory.
  constexpr uint64_t kMostHoles = 5;
  const uint64_t span = numbers_.back() - numbers_.front();
  if (span / kMostHoles < numbers_.size()) {
    rows_.assign(span + 1, kNoRow);
    for (size_t row = 0; row < numbers_.size(); ++row)
      rows_[numbers_[row] - numbers_.front()] = static_cast<NodeId>(row);
    return;
  }
  map_.reserve(numbers_.size());
  for (size_t row = 0; row < numbers_.size(); ++row) map_.emplace(numbers_[row], static_cast<NodeId>(row));
}

NodeId NumberTable::Row(uint64_t number) const {
  if (!rows_.empty()) {
    const uint64_t place = number - numbers_.front();
    return place < rows_.size() ? rows_[place] : kNoRow;
  }
  const auto found = map_.find(number);
  return found == map_.end() ? kNoRow : found->second;
}

absl::Status NumberTable::Write(const Renumbering& renumbering, GraphWriter& writer) const {
  if (renumbering.none()) {
    return writer.Write(SectionKind::kNodeNumbers, ElementType::kUint64, std::span<const uint64_t>(numbers_));
  }
  std::vector<uint64_t> moved(numbers_.size());
  for (size_t row = 0; row < moved.size(); ++row) moved[renumbering.New(static_cast<NodeId>(row))] = numbers_[row];
  return writer.Write(SectionKind::kNodeNumbers, ElementType::kUint64, std::span<const uint64_t>(moved));
}

NodeId TextTable::Row(std::string_view text) {
  if (const auto found = map_.find(text); found != map_.end()) return found->second;
  const auto row = static_cast<NodeId>(texts_.size());
  texts_.push_back(Keep(text));
  map_.emplace(texts_.back(), row);
  return row;
}

std::string_view TextTable::Keep(std::string_view text) {
  constexpr size_t kBlockBytes = size_t{1} << 18;
  if (text.size() > room_) {
    room_ = std::max(kBlockBytes, text.size());
    text_bytes_ += room_;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
    block_end_ = blocks_.back().get() + room_;
  }
  char* const to = block_end_ - room_;
  std::memcpy(to, text.data(), text.size());
  room_ -= text.size();
  return {to, text.size()};
}

uint64_t TextTable::memory_bytes() const {
  // A slot of the map has one control byte.
  constexpr uint64_t kSlotBytes = sizeof(std::pair<std::string_view, NodeId>) + 1;
  return text_bytes_ + texts_.capacity() * sizeof(std::string_view) + map_.capacity() * kSlotBytes;
}

absl::Status TextTable::Write(const Renumbering& renumbering, GraphWriter& writer) const {
  std::vector<std::string_view> moved;
  if (!renumbering.none()) {
    moved.resize(texts_.size());
    for (size_t row = 0; row < moved.size(); ++row) moved[renumbering.New(static_cast<NodeId>(row))] = texts_[row];
  }
  const std::span<const std::string_view> texts = renumbering.none() ? texts_ : moved;
  std::vector<uint64_t> offsets = {0};
  offsets.reserve(texts.size() + 1);
  for (const std::string_view text : texts) offsets.push_back(offsets.back() + text.size());
  PF_RETURN_IF_ERROR(
      writer.Write(SectionKind::kNodeNameOffsets, ElementType::kUint64, std::span<const uint64_t>(offsets)));
  PF_RETURN_IF_ERROR(writer.Begin(SectionKind::kNodeNameText, ElementType::kBytes));
  for (const std::string_view text : texts) PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(text))));
  return absl::OkStatus();
}

namespace {

namespace fs = std::filesystem;

// The names of rows 0, 1, 2, ... They are kept as numbers as long as every name is a number, and as texts otherwise.
class NamesInOrder {
 public:
  explicit NamesInOrder(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // Sets the name of the next row. Returns what is wrong with the name, or an empty string if nothing is.
  std::string Add(std::string_view name) {
    uint64_t number = 0;
    if (texts_.size() == 0 && IsNumber(name, number)) {
      numbers_.push_back(number);
      return "";
    }
    if (std::string fault = MakeTexts(); !fault.empty()) return fault;
    return AddText(name);
  }
  uint64_t size() const { return std::max<uint64_t>(numbers_.size(), texts_.size()); }
  bool TooLarge() const { return 2 * numbers_.size() * sizeof(uint64_t) + texts_.memory_bytes() > memory_bytes_; }

  // Call it after the last name. Returns an error message if two rows have the same number, and an empty string
  // otherwise.
  std::string CheckNumbers() const {
    std::vector<uint64_t> sorted = numbers_;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    if (twice == sorted.end()) return "";
    const auto first = std::ranges::find(numbers_, *twice);
    const auto second = std::find(first + 1, numbers_.end(), *twice);
    return absl::StrCat(*twice, " is the name of node ", first - numbers_.begin(), " and of node ",
                        second - numbers_.begin());
  }
  bool IsRows() const {
    for (size_t row = 0; row < numbers_.size(); ++row) {
      if (numbers_[row] != row) return false;
    }
    return texts_.size() == 0;
  }
  absl::Status Write(const Renumbering& renumbering, GraphWriter& writer) {
    if (texts_.size() > 0) return texts_.Write(renumbering, writer);
    if (!renumbering.none()) {
      std::vector<uint64_t> moved(numbers_.size());
      for (size_t row = 0; row < moved.size(); ++row) moved[renumbering.New(static_cast<NodeId>(row))] = numbers_[row];
      numbers_ = std::move(moved);
    }
    return writer.Write(SectionKind::kNodeNumbers, ElementType::kUint64, std::span<const uint64_t>(numbers_));
  }

 private:
  // Accepts a name only if its number is printed with the same digits. So "007" is a text.
  static bool IsNumber(std::string_view name, uint64_t& number) {
    if (name.empty() || (name.size() > 1 && name[0] == '0') || name[0] == '+') return false;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    return error == std::errc() && stop == name.data() + name.size();
  }
  std::string MakeTexts() {
    for (const uint64_t number : std::exchange(numbers_, {})) {
      if (std::string fault = AddText(absl::StrCat(number)); !fault.empty()) return fault;
    }
    return "";
  }
  std::string AddText(std::string_view name) {
    const uint64_t row = texts_.size();
    const NodeId given = texts_.Row(name);
    return given == row ? "" : absl::StrCat(Quote(name), " is the name of node ", given, " too");
  }

  const uint64_t memory_bytes_;
  std::vector<uint64_t> numbers_;
  TextTable texts_;
};

absl::Status CheckNameMemory(const NamesInOrder& names, const SourceFile& file) {
  if (!names.TooLarge()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(file.name, ": the names of ", names.size(),
                   " nodes are more than the memory of the import holds (options.memory_bytes)"));
}

absl::Status ReadNameArray(const SourceFile& file, const DueNames& due, ImportMonitor& monitor, NamesInOrder& names) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  if (shape.size() != 1 || shape[0] != due.nodes) {
    return array.ShapeError(absl::StrCat("[", due.nodes, "], one id a node (", due.why, ")"));
  }
  std::vector<int64_t> piece;
  while (names.size() < due.nodes) {
    const uint64_t first = names.size();
    piece.resize(std::min<uint64_t>(due.nodes - first, uint64_t{1} << 16));
    PF_RETURN_IF_ERROR(array.ReadIntegers(piece));
    for (size_t i = 0; i < piece.size(); ++i) {
      if (const std::string fault = names.Add(absl::StrCat(piece[i])); !fault.empty()) {
        return array.ElementError(first + i, fault);
      }
    }
    PF_RETURN_IF_ERROR(CheckNameMemory(names, file));
  }
  return array.ExpectEnd();
}

// Splits a row into out.size() cells. Returns what is wrong with the row, or an empty string if nothing is.
std::string SplitNameRow(std::string_view line, std::span<std::string> out) {
  EdgeCells cells(line, {.delimiter = ',', .quote = '"'});
  std::string_view cell;
  size_t count = 0;
  for (; cells.Next(cell); ++count) {
    if (!cells.fault().empty()) return cells.fault();
    if (count < out.size()) out[count] = cell;
  }
  if (count == out.size()) return "";
  return absl::StrCat("columns: the row has ", count, ", expected ",
                      out.size() == 1 ? "1, a name; one with commas stands in quotes" : "2, a row and its name");
}

absl::Status ReadNameRows(const NameFile& from, const DueNames& due, ImportMonitor& monitor, NamesInOrder& names) {
  const SourceFile& file = from.file;
  const bool mapping = from.kind == NameFile::Kind::kMapping;
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  const auto lines = static_cast<int64_t>(due.nodes) + (mapping ? 1 : 0);
  const std::string why = absl::StrCat(due.why, mapping ? ", below a header" : "");
  if (mapping) PF_RETURN_IF_ERROR(rows.NextDue(lines, why).status());
  std::string cells[2];
  const std::span<std::string> wanted = std::span(cells).first(mapping ? 2 : 1);
  while (names.size() < due.nodes) {
    const uint64_t row = names.size();
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(lines, why));
    if (const std::string fault = SplitNameRow(line, wanted); !fault.empty()) return rows.Error(fault);
    if (int64_t is = 0;
        mapping && (ParseInteger(cells[0], is) != IntegerCell::kOk || static_cast<uint64_t>(is) != row)) {
      return rows.Error("node", absl::StrCat(Quote(cells[0]), " is not ", row, ", the next row"));
    }
    const std::string& name = wanted.back();
    if (name.empty()) return rows.Error("name", "is empty");
    if (const size_t bad = FindInvalidUtf8(name); bad != name.npos) {
      return rows.Error("name", absl::StrCat(Quote(name), " is not UTF-8: byte ", bad + 1, " of it is 0x",
                                             absl::Hex(static_cast<unsigned char>(name[bad]), absl::kZeroPad2)));
    }
    if (const std::string fault = names.Add(name); !fault.empty()) return rows.Error("name", fault);
    if (row % 1024 == 0) PF_RETURN_IF_ERROR(CheckNameMemory(names, file));
  }
  PF_RETURN_IF_ERROR(CheckNameMemory(names, file));
  return rows.ExpectEnd(lines, why);
}

absl::StatusOr<std::optional<NameFile>> FindMapping(const fs::path& source) {
  const fs::path folder = source / "mapping";
  std::error_code error;
  std::vector<std::string> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::StartsWith(name, "nodeidx2") &&
        (absl::EndsWith(name, ".csv") || absl::EndsWith(name, ".csv.gz") || absl::EndsWith(name, ".csv.zst"))) {
      found.push_back(name);
    }
  }
  PF_RETURN_IF_ERROR(CheckListed(error, "mapping"));
  if (found.size() != 1) return std::nullopt;
  const std::string name = absl::StrCat("mapping/", found[0]);
  const Packing packing = absl::EndsWith(name, ".gz")    ? Packing::kGzip
                          : absl::EndsWith(name, ".zst") ? Packing::kZstd
                                                         : Packing::kPlain;
  PF_ASSIGN_OR_RETURN(auto file, FindFileAt(source / name, name, packing));
  if (!file) return std::nullopt;
  return NameFile{*std::move(file), NameFile::Kind::kMapping};
}

absl::Status ReadNames(const NameFile& from, const DueNames& due, ImportMonitor& monitor, NamesInOrder& names) {
  PF_RETURN_IF_ERROR(from.kind == NameFile::Kind::kArray ? ReadNameArray(from.file, due, monitor, names)
                                                         : ReadNameRows(from, due, monitor, names));
  if (const std::string fault = names.CheckNumbers(); !fault.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(from.file.name, ": name: ", fault));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<NameFile>> FindNameFile(const fs::path& source, std::string_view ids,
                                                     std::string_view names) {
  PF_ASSIGN_OR_RETURN(auto array, FindNpy(source, ids));
  PF_ASSIGN_OR_RETURN(auto rows, FindSourceFile(source, names));
  if (array && rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows->name, ": stands beside ", array->name, "; one of them is accepted"));
  }
  if (array) return NameFile{*std::move(array), NameFile::Kind::kArray};
  if (rows) return NameFile{*std::move(rows), NameFile::Kind::kRows};
  return FindMapping(source);
}

absl::Status WriteNodeNames(const std::optional<NameFile>& names, const DueNames& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary) {
  if (!names) return WriteSourceRows(due.renumbering, writer, summary);
  NamesInOrder read(due.memory_bytes);
  if (const absl::Status status = ReadNames(*names, due, monitor, read); !status.ok()) {
    const bool unfit = absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
    if (names->kind != NameFile::Kind::kMapping || !unfit || IsTransient(status)) return status;
    monitor.Note(absl::StrCat(status.message(), "; nodes are called by their rows"));
    return WriteSourceRows(due.renumbering, writer, summary);
  }
  if (read.IsRows()) return WriteSourceRows(due.renumbering, writer, summary);
  summary.named = true;
  monitor.Note(absl::StrCat("nodes are called as ", names->file.name, " says"));
  return read.Write(due.renumbering, writer);
}

}  // namespace permafrost::data
