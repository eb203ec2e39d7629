#include "train/loop/artifacts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/runner.h"

namespace permafrost::train {
namespace fs = std::filesystem;

namespace {

// If someone removed the folder meanwhile, the job is not at fault: the next checkpoint makes the folder again.
absl::Status TransientIfNotFound(absl::Status status) {
  return absl::IsNotFound(status) ? AsTransient(std::move(status)) : status;
}

absl::Status Link(const fs::path& source, const fs::path& job_directory, std::string_view name) {
  const fs::path directory = job_directory / "artifacts";
  PF_RETURN_IF_ERROR(CreateDirectories(directory));
  const fs::path temporary = directory / absl::StrCat(".tmp-", AbslView(name)), target = directory / name;
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_hard_link(source, temporary, error);
  if (!error) fs::rename(temporary, target, error);
  // If both names are links to the same file, rename does nothing and keeps both.
  if (!error) fs::remove(temporary, error);
  if (error) return SystemError(error.value(), target, absl::StrCat("link ", source.string(), " to it"));
  return SyncDirectory(directory);
}

// Returns a cell, quoted as RFC 4180 demands.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvHeader(const NamedRows& rows) {
  std::string csv = absl::StrJoin(rows.columns, ",");
  for (const std::string& value : rows.values) absl::StrAppend(&csv, ",", value);
  csv += '\n';
  return csv;
}

// Appends row `i` of `rows`. Its values are row `i` of `predictions`.
void AppendCsvRow(const NamedRows& rows, size_t i, std::span<const float> predictions, std::string& csv) {
  const size_t columns = rows.columns.size(), width = rows.values.size();
  std::array<char, 32> digits;
  for (size_t c = 0; c < columns; ++c) absl::StrAppend(&csv, c == 0 ? "" : ",", CsvCell(rows.names[i * columns + c]));
  for (size_t t = 0; t < width; ++t) {
    const float value = predictions[i * width + t];
    absl::StrAppend(&csv, ",");
    if (t >= rows.empty_nan && std::isnan(value)) continue;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    absl::StrAppend(&csv, absl::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
  }
  csv += '\n';
}

absl::Status WriteCsv(const fs::path& file, const NameRows& name, std::span<const uint32_t> ids,
                      std::span<const float> predictions) {
  PF_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(file));
  std::string text;
  size_t done = 0;
  do {
    const std::span<const uint32_t> some = ids.subspan(done, std::min(kNamedAtOnce, ids.size() - done));
    PF_ASSIGN_OR_RETURN(const NamedRows rows, name(some));
    if (done == 0) text = CsvHeader(rows);
    for (size_t i = 0; i < some.size(); ++i) {
      AppendCsvRow(rows, i, predictions.subspan(done * rows.values.size()), text);
      PF_RETURN_IF_ERROR(writer.Append(text.data(), text.size()));
      text.clear();
    }
    done += some.size();
  } while (done < ids.size());
  // If there are no rows, only the header is left to be written.
  PF_RETURN_IF_ERROR(writer.Append(text.data(), text.size()));
  return writer.SyncAndClose();
}

// Replaces the file as WriteFileAtomic does, but never holds the whole file in memory.
absl::Status ReplaceCsv(const fs::path& target, const NameRows& name, std::span<const uint32_t> ids,
                        std::span<const float> predictions) {
  const fs::path temporary = target.parent_path() / absl::StrCat(".tmp-", target.filename().string());
  absl::Status written = WriteCsv(temporary, name, ids, predictions);
  if (written.ok()) written = Rename(temporary, target);
  // The temporary file is removed at once, because on a full disk the next attempt needs its space.
  if (!written.ok()) RemoveAll(temporary).IgnoreError();
  return written;
}

}  // namespace

std::string PredictionsCsv(const NamedRows& rows, std::span<const float> predictions) {
  std::string csv = CsvHeader(rows);
  for (size_t i = 0; i * rows.columns.size() < rows.names.size(); ++i) AppendCsvRow(rows, i, predictions, csv);
  return csv;
}

absl::Status LinkArtifact(const fs::path& source, const fs::path& job_directory, std::string_view name) {
  return TransientIfNotFound(Link(source, job_directory, name));
}

absl::Status WritePredictions(const fs::path& job_directory, const NameRows& name, std::span<const uint32_t> ids,
                              std::span<const float> predictions) {
  PF_RETURN_IF_ERROR(CreateDirectories(job_directory / "artifacts"));
  return TransientIfNotFound(ReplaceCsv(job_directory / "artifacts" / kTestPredictionsFile, name, ids, predictions));
}

}  // namespace permafrost::train
