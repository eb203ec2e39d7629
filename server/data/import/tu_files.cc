#include "data/import/tu_files.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sort/edge_sorter.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndicator = "_graph_indicator.txt";

// Files, keyed by their path below the source.
using FilesByName = std::map<std::string, SourceFile>;

// Returns true for a resource fork. macOS adds one beside each file of an archive; it is not part of the dataset.
bool IsResourceFork(std::string_view path) {
  const size_t slash = path.rfind('/');
  return path.substr(slash == path.npos ? 0 : slash + 1).starts_with("._");
}

// Escapes a member's name for messages, since it may hold any bytes.
std::string Shown(std::string_view path) { return absl::CHexEscape(AbslView(path)); }

absl::StatusOr<FilesByName> FilesOfZip(const fs::path& source, const ImportLimits& limits,
                                       std::vector<std::string>& all) {
  const std::string name = source.filename().string();
  PF_ASSIGN_OR_RETURN(const auto archive, FindFileAt(source, name, Packing::kPlain));
  if (!archive) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  const ImportObserver nobody;
  const ImportMonitor monitor(0, nobody, std::stop_token(), limits);
  PF_ASSIGN_OR_RETURN(const auto entries, ListZip(*archive, monitor));
  FilesByName files;
  for (const ZipEntry& entry : entries) {
    if (entry.name.ends_with('/') || IsResourceFork(entry.name)) continue;
    all.push_back(entry.name);
    if (!entry.name.ends_with(".txt")) continue;
    // The archive may state a wrong packed size, so the size of the whole archive limits it.
    const uint64_t packed = std::min(entry.packed, static_cast<uint64_t>(archive->bytes));
    files.emplace(entry.name, SourceFile{.path = source,
                                         .name = Shown(entry.name),
                                         .packing = Packing::kZip,
                                         .bytes = static_cast<int64_t>(packed),
                                         .member = entry.name});
  }
  return files;
}

// Calls take(path, name) for each entry of `directory` and of its raw/. `name` is the path below `directory`, as
// messages show it.
template <class F>
absl::Status ForEachEntry(const fs::path& directory, const F& take) {
  for (const char* prefix : {"", "raw/"}) {
    const fs::path folder = *prefix == '\0' ? directory : directory / "raw";
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      PF_RETURN_IF_ERROR(take(it->path(), absl::StrCat(prefix, it->path().filename().string())));
    }
    PF_RETURN_IF_ERROR(CheckListed(error, folder.string()));
  }
  return absl::OkStatus();
}

// Returns the files of `source` whose names look like those of a TUDataset.
absl::StatusOr<FilesByName> FilesOfDirectory(const fs::path& source) {
  FilesByName files;
  const auto take = [&files](const fs::path& path, const std::string& name) -> absl::Status {
    if (!name.ends_with(".txt") || name.find('_') == name.npos) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(auto file, FindFileAt(path, name, Packing::kPlain));
    if (file) files.emplace(name, *std::move(file));
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(ForEachEntry(source, take));
  return files;
}

// Finds the set's name and which of its files exist.
class Finder {
 public:
  Finder(const fs::path& source, FilesByName files) : source_(source), files_(std::move(files)) {}

  // Finds NAME_graph_indicator.txt, and sets stem_ to its path without "_graph_indicator.txt".
  absl::Status FindName() {
    for (const auto& [path, file] : files_) {
      if (!path.ends_with(kIndicator)) continue;
      if (!stem_.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(source_.string(), ": holds several sets, ", Shown(stem_),
                                                       " and ", Shown(path.substr(0, path.size() - kIndicator.size())),
                                                       "; one is accepted"));
      }
      stem_ = path.substr(0, path.size() - kIndicator.size());
    }
    if (!stem_.empty()) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(source_.string(), ": holds no NAME_graph_indicator.txt, so it is no TUDataset"));
  }
  std::optional<SourceFile> Take(std::string_view table) {
    const auto found = files_.find(absl::StrCat(stem_, "_", AbslView(table), ".txt"));
    if (found == files_.end()) return std::nullopt;
    return found->second;
  }
  absl::StatusOr<SourceFile> TakeRequired(std::string_view table) {
    if (auto file = Take(table)) return *std::move(file);
    return absl::NotFoundError(
        absl::StrCat(Shown(stem_), "_", AbslView(table), ".txt: not found in ", source_.string()));
  }
  const std::string& stem() const { return stem_; }

 private:
  const fs::path& source_;
  FilesByName files_;
  std::string stem_;
};

// Drops the node tables that the options do not ask for.
absl::Status Choose(const TuOptions& options, TuFiles& files) {
  const auto missing = [&](std::string_view table) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.tu.node_features: ", AbslView(kTuNodeFeaturesNames.Name(options.node_features)),
                     ", but there is no ", files.name, "_node_", AbslView(table), ".txt; all and degree are accepted"));
  };
  switch (options.node_features) {
    case TuNodeFeatures::kAll:
      files.degrees = !files.node.labels && !files.node.attributes;
      break;
    case TuNodeFeatures::kLabels:
      if (!files.node.labels) return missing("labels");
      files.node.attributes.reset();
      break;
    case TuNodeFeatures::kAttributes:
      if (!files.node.attributes) return missing("attributes");
      files.node.labels.reset();
      break;
    case TuNodeFeatures::kDegree:
      files.node = {};
      files.degrees = true;
      break;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TuFiles::bytes() const {
  int64_t sum = 2 * edges.bytes + graph_of_node.bytes;
  for (const auto* file : {&graph_labels, &graph_attributes, &node.attributes, &edge.attributes}) {
    if (*file) sum += (*file)->bytes;
  }
  for (const auto* file : {&node.labels, &edge.labels}) {
    if (*file) sum += 2 * (*file)->bytes;
  }
  return sum;
}

SourceContents TuFiles::contents(const fs::path& source) const {
  SourceContents contents{.all = std::nullopt, .folder = source, .read = {}, .known = TuNames(stem)};
  if (!all_of_archive.empty()) contents.all = all_of_archive;
  // For an archive, lists the real path of the member; file.name holds it escaped for messages.
  const auto add = [&contents](const SourceFile& file) {
    contents.read.push_back(file.member.empty() ? file.name : file.member);
  };
  add(edges);
  add(graph_of_node);
  for (const auto* file :
       {&graph_labels, &graph_attributes, &node.labels, &node.attributes, &edge.labels, &edge.attributes}) {
    if (*file) add(**file);
  }
  return contents;
}

absl::StatusOr<TuFiles> FindTuFiles(const ImportOptions& options, const ImportLimits& limits) {
  TuFiles files;
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(options.source, options.source.string()));
  PF_ASSIGN_OR_RETURN(auto found, type == fs::file_type::directory
                                      ? FilesOfDirectory(options.source)
                                      : FilesOfZip(options.source, limits, files.all_of_archive));
  Finder finder(options.source, std::move(found));
  PF_RETURN_IF_ERROR(finder.FindName());
  files.stem = finder.stem();
  files.name = fs::path(finder.stem()).filename().string();
  PF_ASSIGN_OR_RETURN(files.edges, finder.TakeRequired("A"));
  PF_ASSIGN_OR_RETURN(files.graph_of_node, finder.TakeRequired("graph_indicator"));
  files.graph_attributes = finder.Take("graph_attributes");
  // Attributes of graphs are the targets, as in PyG. Labels are the targets only if there are no attributes.
  if (!files.graph_attributes) files.graph_labels = finder.Take("graph_labels");
  files.node = {finder.Take("node_labels"), finder.Take("node_attributes")};
  files.edge = {finder.Take("edge_labels"), finder.Take("edge_attributes")};
  PF_RETURN_IF_ERROR(Choose(options.tu, files));
  return files;
}

absl::StatusOr<bool> IsTuDirectory(const fs::path& directory) {
  bool found = false;
  const auto look = [&found](const fs::path&, const std::string& name) {
    found = found || name.ends_with(kIndicator);
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(ForEachEntry(directory, look));
  return found;
}

bool IsZipName(const fs::path& file) { return absl::AsciiStrToLower(file.extension().string()) == ".zip"; }

namespace {

// The most one-hot columns. Labels that need more are hardly meant as one-hot, and a table of such rows fills disks.
constexpr int64_t kMostOneHot = 4096;

}  // namespace

template <class Take>
absl::Status TuFeatures::ParseLabelRow(const CsvRows& rows, std::string_view line, size_t width,
                                       const Take& take) const {
  if (const int64_t cells = CountCells(line); width != 0 && cells != static_cast<int64_t>(width)) {
    return rows.WidthError(cells, static_cast<int64_t>(width), "as the rows before");
  }
  Cells cells(line);
  std::string_view cell;
  for (size_t column = 0; cells.Next(cell); ++column) {
    int32_t value = 0;
    if (ParseInteger(cell, value) != IntegerCell::kOk) {
      // Some sets write whole numbers with a decimal point.
      const auto number = ParseFinite(cell);
      constexpr float kExact = 1 << 24;
      if (!number || std::floor(*number) != *number || std::abs(*number) > kExact) {
        return rows.Error(absl::StrCat("label ", column + 1),
                          absl::StrCat(Quote(cell), " is no whole number of 32 bits"));
      }
      value = static_cast<int32_t>(*number);
    }
    take(column, value);
  }
  return absl::OkStatus();
}

absl::Status TuFeatures::ScanLabels(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  for (int64_t row = 0; row < due_; ++row) {
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(due_, why_));
    const size_t width = label_columns_.size();
    if (width == 0) label_columns_.assign(static_cast<size_t>(CountCells(line)), {INT64_MAX, INT64_MIN});
    const auto widen = [this](size_t column, int64_t value) {
      Label& label = label_columns_[column];
      label = {std::min(label.min, value), std::max(label.max, value)};
      values_.Add(column, value);
    };
    PF_RETURN_IF_ERROR(ParseLabelRow(rows, line, width, widen));
  }
  PF_RETURN_IF_ERROR(rows.ExpectEnd(due_, why_));
  int64_t columns = 0;
  for (size_t c = 0; c < label_columns_.size(); ++c) {
    const Label& label = label_columns_[c];
    columns += label.categories();
    if (floats() && columns > kMostOneHot) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.name, ": label ", c + 1, ": numbers from ", label.min, " to ", label.max, " make ", columns,
          " one-hot columns; at most ", kMostOneHot, " are accepted (labels or attributes alone need none)"));
    }
    if (label.categories() > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(file.name, ": label ", c + 1, ": numbers from ", label.min, " to ",
                                                     label.max, " are more than 2147483647 categories"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TuFeatures> TuFeatures::Open(const TuFiles::Features& files, bool one_hot, int64_t rows,
                                            const std::string& why, ImportMonitor& monitor) {
  TuFeatures features(one_hot, rows, why);
  if (files.attributes) {
    PF_ASSIGN_OR_RETURN(features.attributes_, CsvRows::Open(*files.attributes, monitor));
  }
  if (files.labels) {
    PF_RETURN_IF_ERROR(features.ScanLabels(*files.labels, monitor));
    PF_ASSIGN_OR_RETURN(features.labels_, CsvRows::Open(*files.labels, monitor));
  }
  return features;
}

absl::Status TuFeatures::SetUp() {
  int64_t width = static_cast<int64_t>(num_attributes_);
  for (const Label& label : label_columns_) width += floats() ? label.categories() : 1;
  summary_.type = floats() ? DataType::kFloat32 : DataType::kInt32;
  summary_.width = width;
  const auto cells = static_cast<size_t>(width);
  (floats() ? floats_.resize(cells) : ints_.resize(cells));
  summary_.min.assign(cells, std::numeric_limits<double>::infinity());
  summary_.max.assign(cells, -std::numeric_limits<double>::infinity());
  return absl::OkStatus();
}

absl::Status TuFeatures::ParseAttributes(std::string_view line) {
  const CsvRows& rows = *attributes_;
  if (const int64_t cells = CountCells(line); cells != static_cast<int64_t>(num_attributes_)) {
    return rows.WidthError(cells, static_cast<int64_t>(num_attributes_), "as the rows before");
  }
  Cells cells(line);
  std::string_view cell;
  for (size_t column = 0; cells.Next(cell); ++column) {
    const auto value = ParseFinite(cell);
    if (!value)
      return rows.Error(absl::StrCat("attribute ", column + 1),
                        absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell))));
    floats_[column] = *value;
  }
  return absl::OkStatus();
}

absl::Status TuFeatures::Next() {
  std::string_view attributes, labels;
  if (attributes_) {
    PF_ASSIGN_OR_RETURN(attributes, attributes_->NextDue(due_, why_));
    if (num_attributes_ == 0) num_attributes_ = static_cast<size_t>(CountCells(attributes));
  }
  if (labels_) {
    PF_ASSIGN_OR_RETURN(labels, labels_->NextDue(due_, why_));
  }
  if (summary_.width == 0) PF_RETURN_IF_ERROR(SetUp());
  if (attributes_) PF_RETURN_IF_ERROR(ParseAttributes(attributes));
  if (labels_) {
    std::fill(floats_.begin() + static_cast<std::ptrdiff_t>(std::min(num_attributes_, floats_.size())), floats_.end(),
              0.0F);
    size_t first = num_attributes_;
    const auto take = [&](size_t column, int64_t value) {
      const Label& label = label_columns_[column];
      // The file may have changed since it was scanned.
      const auto category = static_cast<size_t>(std::clamp(value, label.min, label.max) - label.min);
      if (!floats()) {
        ints_[column] = static_cast<int32_t>(category);
        return;
      }
      floats_[first + category] = 1;
      first += static_cast<size_t>(label.categories());
    };
    PF_RETURN_IF_ERROR(ParseLabelRow(*labels_, labels, label_columns_.size(), take));
  }
  Widen();
  return absl::OkStatus();
}

void TuFeatures::Widen() {
  for (size_t c = 0; c < summary_.min.size(); ++c) {
    const double value = floats() ? static_cast<double>(floats_[c]) : ints_[c];
    summary_.min[c] = std::min(summary_.min[c], value);
    summary_.max[c] = std::max(summary_.max[c], value);
  }
}

absl::Status TuFeatures::ExpectEnd() {
  if (attributes_) PF_RETURN_IF_ERROR(attributes_->ExpectEnd(due_, why_));
  return labels_ ? labels_->ExpectEnd(due_, why_) : absl::OkStatus();
}

std::span<const std::byte> TuFeatures::row() const {
  return floats() ? std::as_bytes(std::span(floats_)) : std::as_bytes(std::span(ints_));
}

std::vector<CategoryTable> TuFeatures::categories() const {
  std::vector<CategoryTable> tables;
  auto column = static_cast<int64_t>(num_attributes_);
  for (size_t c = 0; c < label_columns_.size(); ++c) {
    const int64_t columns = floats() ? label_columns_[c].categories() : 0;
    CategoryTable& table = tables.emplace_back(CategoryTable{
        .origin = CategoryOrigin::kLabel, .column = column, .columns = columns, .base = label_columns_[c].min});
    values_.Take(c, table);
    column += std::max<int64_t>(columns, 1);
  }
  return tables;
}

std::string TuFeatures::origin() const {
  if (!labels_) return attributes_ ? "attributes" : "";
  std::string from;
  for (const Label& label : label_columns_) absl::StrAppend(&from, from.empty() ? " from " : ", ", label.min);
  if (!floats()) return absl::StrCat("labels", from);
  return absl::StrCat(attributes_ ? "attributes and one-hot labels" : "one-hot labels", from);
}

absl::Status TuRows::Keep(int64_t rows) {
  constexpr size_t kBufferBytes = size_t{1} << 19;
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  std::vector<std::byte> buffer;
  for (int64_t row = 0; row < rows; ++row) {
    PF_RETURN_IF_ERROR(features_.Next());
    buffer.insert(buffer.end(), features_.row().begin(), features_.row().end());
    if (buffer.size() < kBufferBytes) continue;
    PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
    buffer.clear();
  }
  PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
  row_.resize(features_.row().size());
  file_ = std::make_unique<NamelessFile>(std::move(file));
  return absl::OkStatus();
}

absl::Status TuRows::Read(uint64_t row) { return file_ ? file_->Read(row * row_.size(), row_) : features_.Next(); }

namespace {

constexpr std::string_view kAsFirstRead = "as when it was read first";
constexpr size_t kEdgesOfPiece = size_t{1} << 14;

// Packs an edge into a record that sorts by graph, then by row. Stores both ends of the edge in the timestamp.
FullEdge ToRecord(const TuEdges::Edge& edge) {
  return {.key = MakeEdgeKey(edge.graph, 0),
          .row = edge.row,
          .timestamp = static_cast<int64_t>(MakeEdgeKey(edge.source, edge.target))};
}

TuEdges::Edge FromRecord(const FullEdge& record) {
  const auto ends = static_cast<EdgeKey>(record.timestamp);
  return {.graph = MajorOf(record.key), .source = MajorOf(ends), .target = MinorOf(ends), .row = record.row};
}

}  // namespace

absl::Status TuEdges::Begin() {
  read_ = 0;
  graph_ = 0;
  if (!count_) largest_node_ = descents_ = last_source_ = 0;
  piece_.clear();
  at_ = 0;
  if (sorted()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(rows_, CsvRows::Open(file_, monitor_));
  return absl::OkStatus();
}

absl::StatusOr<TuEdges::Next> TuEdges::Read(Edge& edge) {
  if (sorted()) return ReadSorted(edge);
  std::string_view line;
  if (count_) {
    if (read_ == static_cast<uint64_t>(*count_)) return End();
    PF_ASSIGN_OR_RETURN(line, rows_->NextDue(*count_, kAsFirstRead));
  } else {
    PF_ASSIGN_OR_RETURN(const bool more, rows_->Next(line));
    if (!more) return End();
    if (FindsZero(line)) {
      rows_->Rewind();
      return Next::kAnew;
    }
  }
  auto parsed = Parse(line);
  if (!parsed.ok()) {
    PF_ASSIGN_OR_RETURN(const bool anew, ZeroFollows());
    return anew ? absl::StatusOr<Next>(Next::kAnew) : parsed.status();
  }
  edge = *parsed;
  edge.row = read_++;
  if (!count_) Watch(edge);
  if (edge.graph >= std::exchange(graph_, edge.graph)) return Next::kEdge;
  if (count_) return absl::InvalidArgumentError(absl::StrCat(file_.name, ": changed while it was read"));
  rows_->Rewind();
  // If an id 0 turns up, Sort returns false, and the file is read once more.
  for (bool done = false; !done;) {
    PF_ASSIGN_OR_RETURN(done, Sort());
  }
  return Next::kAnew;
}

void TuEdges::Watch(const Edge& edge) {
  const int64_t first = sizes_.FirstNodeOf(edge.graph);
  largest_node_ = std::max(largest_node_, first + std::max(edge.source, edge.target) + 1);
  descents_ += first + edge.source < last_source_;
  last_source_ = first + edge.source;
}

absl::StatusOr<TuEdges::Next> TuEdges::End() {
  if (count_) {
    PF_RETURN_IF_ERROR(rows_->ExpectEnd(*count_, kAsFirstRead));
  }
  count_ = static_cast<int64_t>(read_);
  return Next::kEnd;
}

absl::StatusOr<TuEdges::Next> TuEdges::ReadSorted(Edge& edge) {
  if (at_ == piece_.size()) {
    const uint64_t left = static_cast<uint64_t>(*count_) - read_;
    if (left == 0) return Next::kEnd;
    PF_RETURN_IF_ERROR(monitor_.CheckStop());
    piece_.resize(std::min<uint64_t>(left, kEdgesOfPiece));
    at_ = 0;
    PF_RETURN_IF_ERROR(sorted_->Read(read_ * sizeof(Edge), std::as_writable_bytes(std::span(piece_))));
  }
  edge = piece_[at_++];
  ++read_;
  return Next::kEdge;
}

absl::StatusOr<bool> TuEdges::Sort() {
  PF_ASSIGN_OR_RETURN(rows_, CsvRows::Open(file_, monitor_));
  EdgeSorter<FullEdge> sorter({.directory = directory_,
                               .memory_bytes = memory_bytes_,
                               .add_inverses = false,
                               .threads = monitor_.limits().threads},
                              monitor_.stop());
  std::vector<FullEdge> records;
  uint64_t count = 0;
  largest_node_ = descents_ = last_source_ = 0;
  for (;;) {
    std::string_view line;
    PF_ASSIGN_OR_RETURN(const bool more, rows_->Next(line));
    if (more && FindsZero(line)) {
      rows_->Rewind();
      return false;
    }
    if (more) {
      auto edge = Parse(line);
      if (!edge.ok()) {
        PF_ASSIGN_OR_RETURN(const bool anew, ZeroFollows());
        return anew ? absl::StatusOr<bool>(false) : edge.status();
      }
      edge->row = count++;
      Watch(*edge);
      records.push_back(ToRecord(*edge));
    }
    if (!more || records.size() == kEdgesOfPiece) {
      PF_RETURN_IF_ERROR(sorter.Add(records));
      records.clear();
    }
    if (!more) break;
  }
  PF_RETURN_IF_ERROR(sorter.Finish());
  PF_ASSIGN_OR_RETURN(NamelessFile sorted, NamelessFile::Create(directory_));
  std::vector<Edge> edges;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::span<const FullEdge> next, sorter.Next());
    if (next.empty()) break;
    edges.clear();
    for (const FullEdge& record : next) edges.push_back(FromRecord(record));
    PF_RETURN_IF_ERROR(sorted.Append(std::as_bytes(std::span(edges)), monitor_.stop()));
  }
  count_ = static_cast<int64_t>(count);
  sorted_ = std::make_unique<NamelessFile>(std::move(sorted));
  // The total of the progress includes a second reading of the file, which a sorted file does not need.
  PF_RETURN_IF_ERROR(monitor_.Advance(file_.name, file_.bytes));
  return true;
}

bool TuEdges::FindsZero(std::string_view line) {
  if (first_node_ == 0) return false;
  Cells cells(line);
  for (std::string_view cell; cells.Next(cell);) {
    if (cell == "0") first_node_ = 0;
  }
  return first_node_ == 0;
}

absl::StatusOr<bool> TuEdges::ZeroFollows() {
  if (count_) return false;
  while (first_node_ != 0) {
    std::string_view line;
    const auto more = rows_->Next(line);
    if (IsTransient(more.status()) || absl::IsCancelled(more.status())) return more.status();
    if (!more.ok() || !*more) return false;
    if (FindsZero(line)) {
      rows_->Rewind();
      return true;
    }
  }
  return false;
}

absl::StatusOr<TuEdges::Edge> TuEdges::Parse(std::string_view line) const {
  Cells cells(line);
  std::string_view source_cell, target_cell, extra;
  cells.Next(source_cell);
  if (!cells.Next(target_cell) || cells.Next(extra)) return rows_->WidthError(CountCells(line), 2, "source, target");
  PF_ASSIGN_OR_RETURN(const int64_t source, ParseNode("source", source_cell));
  PF_ASSIGN_OR_RETURN(const int64_t target, ParseNode("target", target_cell));
  const int64_t graph = sizes_.GraphOf(source, /*guess=*/graph_);
  const int64_t first = sizes_.FirstNodeOf(graph), nodes = sizes_.NodesOf(graph);
  if (target < first || target >= first + nodes) {
    return rows_->Error("target", absl::StrCat(target + first_node_, " is of another graph than source ",
                                               source + first_node_, ", of graph ", graph + 1, " with the nodes ",
                                               first + first_node_, "..", first + nodes - 1 + first_node_));
  }
  return Edge{.graph = static_cast<uint32_t>(graph),
              .source = static_cast<uint32_t>(source - first),
              .target = static_cast<uint32_t>(target - first)};
}

absl::StatusOr<int64_t> TuEdges::ParseNode(std::string_view field, std::string_view cell) const {
  int64_t id = 0;
  const IntegerCell parsed = ParseInteger(cell, id);
  if (parsed != IntegerCell::kOk) {
    return rows_->Error(field, absl::StrCat(Quote(cell), parsed == IntegerCell::kOutOfRange ? " is outside 64 bits"
                                                                                            : " is not an integer"));
  }
  const int64_t nodes = sizes_.num_nodes();
  if (id < first_node_ || id >= nodes + first_node_) {
    return rows_->Error(field, nodes == 0
                                   ? absl::StrCat(id, " cannot be: the set has no nodes")
                                   : absl::StrCat(id, " is outside ", first_node_, "..", nodes - 1 + first_node_));
  }
  return id - first_node_;
}

}  // namespace permafrost::data
