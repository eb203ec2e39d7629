// Implements StoreImporter (import.h).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/import/import.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array kStoreNames = {GraphSet::kFileName, Graph::kFileName};
// The catalog's record, which stands beside a store. An import writes a new one.
constexpr std::string_view kStoreRecord = "dataset.json";

// Returns `status` with `path` replaced by `name` in its message.
absl::Status WithName(const absl::Status& status, const fs::path& path, const std::string& name) {
  return WithPayloadsOf(absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{path.string(), name}})),
                        status);
}

// Checks that values lie within the range that the summary of their table states. Models size embeddings and outputs
// by this range. Valid checksums do not prove the range, since a forged file can have valid checksums too.
class RangeCheck {
 public:
  // `what` names the table in messages. `low` and `high` hold one bound per column; they are empty if the table has
  // no rows.
  RangeCheck(std::string_view what, std::vector<double> low, std::vector<double> high)
      : what_(what), low_(std::move(low)), high_(std::move(high)) {}

  // Checks the next row, which has one value per column. A NaN is a missing value and passes.
  template <class T>
  absl::Status Add(std::span<const T> row) {
    for (size_t c = 0; c < row.size(); ++c) {
      const auto value = static_cast<double>(row[c]);
      const bool told = c < low_.size() && c < high_.size();
      if (told && !(value < low_[c]) && !(value > high_[c])) continue;
      return absl::DataLossError(absl::StrCat(AbslView(what_), ": row ", row_, ": column ", c, ": is ", value,
                                              told ? ", and its summary tells " : ", and its summary tells no range",
                                              told ? absl::StrCat(low_[c], " to ", high_[c]) : ""));
    }
    ++row_;
    return absl::OkStatus();
  }

 private:
  const std::string_view what_;
  const std::vector<double> low_, high_;
  uint64_t row_ = 0;
};

constexpr std::string_view kNodeTable = "node features", kEdgeTable = "edge features";

absl::Status CheckTable(std::string_view what, const FeatureSummary& summary, const FeatureTable& table) {
  if (!IsCategorical(summary.type)) return absl::OkStatus();
  RangeCheck check(what, summary.min, summary.max);
  const auto width = static_cast<size_t>(table.width);
  for (size_t at = 0; at + width <= table.ints.size() && width > 0; at += width) {
    PF_RETURN_IF_ERROR(check.Add(table.ints.subspan(at, width)));
  }
  return absl::OkStatus();
}

uint64_t RowsOf(const DenseFeatures& table) {
  const uint64_t bytes = table.bytes.size();
  if (table.groups.rows == 0) return bytes / table.row_bytes();
  const uint64_t rest = bytes % table.groups.bytes / table.row_bytes();
  return bytes / table.groups.bytes * table.groups.rows + std::min<uint64_t>(table.groups.rows, rest);
}

// Checks the values in their stored type T. Converted to float, integers above 2^24 would be rounded.
template <class T>
absl::Status CheckRows(RangeCheck& check, const DenseFeatures& table, ImportMonitor& monitor) {
  constexpr uint64_t kRowsBetweenStops = 4096;
  std::vector<T> values(static_cast<size_t>(table.width));
  const uint64_t rows = RowsOf(table);
  for (uint64_t row = 0; row < rows; ++row) {
    if (row % kRowsBetweenStops == 0) PF_RETURN_IF_ERROR(monitor.CheckStop());
    const uint64_t at = table.OffsetOf(row);
    if (!table.bytes.Touch(at, at + table.row_bytes())) return table.bytes.status();
    std::memcpy(values.data(), table.bytes.data() + at, table.row_bytes());
    PF_RETURN_IF_ERROR(check.Add(std::span<const T>(values)));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(std::string_view what, const FeatureSummary& summary, const DenseFeatures& table,
                        ImportMonitor& monitor) {
  if (table.width == 0) return absl::OkStatus();
  RangeCheck check(what, summary.min, summary.max);
  switch (summary.type) {
    case DataType::kInt32:
      return CheckRows<int32_t>(check, table, monitor);
    case DataType::kInt64:
      return CheckRows<int64_t>(check, table, monitor);
    case DataType::kUint8:
      return CheckRows<uint8_t>(check, table, monitor);
    default:
      return absl::OkStatus();
  }
}

// Checks that labels are whole numbers within [low, high]. A NaN is a missing label and passes.
template <class Labels>
absl::Status CheckClasses(const Labels& labels, double low, double high) {
  for (uint64_t i = 0; i < labels.size(); ++i) {
    const float label = labels[i];
    if (std::isnan(label) || (label >= low && label <= high && label == std::floor(label))) continue;
    return absl::DataLossError(
        absl::StrCat("labels: value ", i, ": is ", label, ", and its summary tells whole numbers ", low, " to ", high));
  }
  return absl::OkStatus();
}

absl::Status CheckSummary(const GraphSet& set, ImportMonitor& /*monitor*/) {
  const GraphSetSummary& summary = set.summary();
  PF_ASSIGN_OR_RETURN(const FeatureTable nodes, set.node_features());
  PF_ASSIGN_OR_RETURN(const FeatureTable edges, set.edge_features());
  PF_RETURN_IF_ERROR(CheckTable(kNodeTable, summary.node_features, nodes));
  PF_RETURN_IF_ERROR(CheckTable(kEdgeTable, summary.edge_features, edges));
  PF_ASSIGN_OR_RETURN(const std::span<const float> labels, set.labels());
  if (!summary.labels_known || !summary.integer_labels) return absl::OkStatus();
  return CheckClasses(labels, summary.min_label, summary.max_label);
}

absl::Status CheckSummary(const Graph& graph, ImportMonitor& monitor) {
  const GraphSummary& summary = graph.summary();
  const GraphView& view = graph.view();
  // Models of one large graph size nothing by the range of node features, so only edge features and classes are
  // checked.
  PF_RETURN_IF_ERROR(CheckTable(kEdgeTable, summary.edge_features, view.edge_features, monitor));
  if (!summary.integer_labels) return absl::OkStatus();
  return CheckClasses(view.labels, summary.min_label, summary.max_label);
}

class FoundStore final : public FoundSource {
 public:
  // `may_link` is true if the file belongs to the server and nobody writes to it any more.
  FoundStore(SourceFile file, bool may_link) : file_(std::move(file)), may_link_(may_link) {}

  // Counts the file twice: it is linked or copied first, and then verified at its new place.
  int64_t bytes() const override { return 2 * file_.bytes; }
  absl::StatusOr<ImportedSummary> Run(const fs::path& directory, ImportMonitor& monitor) override {
    const fs::path path = directory / file_.name;
    PF_ASSIGN_OR_RETURN(const bool linked, Link(path, monitor));
    if (!linked) PF_RETURN_IF_ERROR(Copy(path, monitor));
    absl::StatusOr<ImportedSummary> summary = Verify(directory, monitor);
    if (!summary.ok()) return WithName(summary.status(), path, file_.name);
    return summary;
  }

 private:
  // Makes a hard link `to` to the file. Returns false if linking is not allowed or the file system refuses it. The
  // caller then copies the file.
  absl::StatusOr<bool> Link(const fs::path& to, ImportMonitor& monitor) const {
    if (!may_link_) return false;
    PF_ASSIGN_OR_RETURN(const Descriptor opened, OpenSource(file_, monitor));
    // The link leads to the opened file, even if its name leads to another file by now.
    const std::string from = absl::StrCat("/proc/self/fd/", opened.get());
    if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
    PF_RETURN_IF_ERROR(monitor.Advance(file_.name, file_.bytes));
    return true;
  }

  absl::Status Copy(const fs::path& to, ImportMonitor& monitor) const {
    constexpr size_t kPieceBytes = size_t{1} << 20;
    PF_ASSIGN_OR_RETURN(const std::unique_ptr<SourceReader> reader, SourceReader::Open(file_, monitor));
    PF_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(to));
    std::vector<char> piece(kPieceBytes);
    for (;;) {
      const absl::StatusOr<size_t> read = reader->Read(piece.data(), piece.size());
      if (!read.ok()) return Annotate(read.status(), file_.name);
      if (*read == 0) return writer.SyncAndClose();
      PF_RETURN_IF_ERROR(writer.Append(piece.data(), *read));
    }
  }

  absl::StatusOr<ImportedSummary> Verify(const fs::path& directory, ImportMonitor& monitor) const {
    const std::string what = absl::StrCat("verifying ", file_.name);
    PF_ASSIGN_OR_RETURN(const OpenedDataset store, OpenDataset(directory));
    int64_t told = 0;
    absl::Status going;
    const auto tell = [&](uint64_t done, uint64_t /*total*/) {
      going = monitor.Advance(what, static_cast<int64_t>(done) - std::exchange(told, static_cast<int64_t>(done)));
      return going.ok();
    };
    const absl::Status verified = std::visit([&](const auto& opened) { return opened->VerifyAll(tell); }, store);
    PF_RETURN_IF_ERROR(going);
    PF_RETURN_IF_ERROR(verified);
    const absl::Status told_truly =
        std::visit([&](const auto& opened) { return CheckSummary(*opened, monitor); }, store);
    if (!told_truly.ok()) return Annotate(told_truly, file_.name);
    // VerifyAll reports no progress for the header, the table of sections and the gaps between sections. Their bytes
    // are reported here.
    PF_RETURN_IF_ERROR(monitor.Advance(what, file_.bytes - told));
    return SummaryOf(store);
  }

  const SourceFile file_;
  const bool may_link_;
};

absl::StatusOr<std::unique_ptr<FoundSource>> FindStore(const ImportOptions& options, const ImportLimits& limits) {
  const fs::path& source = options.source;
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(source, source.string()));
  if (type == fs::file_type::regular) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.string(), ": is a file; the format store takes the directory that holds it"));
  }
  std::vector<std::string> stores, others;
  std::error_code error;
  for (fs::directory_iterator it(source, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (std::ranges::find(kStoreNames, name) != kStoreNames.end()) {
      stores.push_back(std::move(name));
    } else if (name != kStoreRecord && !name.starts_with('.')) {
      others.push_back(std::move(name));
    }
  }
  PF_RETURN_IF_ERROR(CheckListed(error, source.string()));
  if (stores.empty()) {
    return absl::NotFoundError(absl::StrCat(source.string(), ": holds neither ", AbslView(kStoreNames[0]), " nor ",
                                            AbslView(kStoreNames[1]), ", so it is no dataset of a server"));
  }
  if (stores.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(source.string(), ": holds ", AbslView(kStoreNames[0]), " and ",
                                                   AbslView(kStoreNames[1]), "; one of them is accepted"));
  }
  // Other files are refused, since a note about them would have to go into the store, which stays unchanged.
  if (!others.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.string(), ": holds ", Quote(*std::ranges::min_element(others)),
                     ", which is no part of a dataset; accepted beside ", stores[0], ": ", AbslView(kStoreRecord)));
  }
  PF_ASSIGN_OR_RETURN(std::optional<SourceFile> file, FindFileAt(source / stores[0], stores[0], Packing::kPlain));
  if (!file) return absl::NotFoundError(absl::StrCat(stores[0], ": not found in ", source.string()));
  return std::make_unique<FoundStore>(*std::move(file), !limits.own_files.empty() && IsBelow(source, limits.own_files));
}

absl::StatusOr<bool> IsStoreDirectory(const fs::path& directory) {
  return HoldsAny(directory, {kStoreNames[0], kStoreNames[1]});
}

bool IsStoreName(const fs::path& file) { return std::ranges::find(kStoreNames, file.filename()) != kStoreNames.end(); }

}  // namespace

Importer StoreImporter() {
  return {.format = ImportFormat::kStore,
          .known_by = "graphs.pfg or graph.pfg",
          .detect = &IsStoreDirectory,
          .detect_file = &IsStoreName,
          .find = &FindStore};
}

}  // namespace permafrost::data
