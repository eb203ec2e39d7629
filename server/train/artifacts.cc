#include "train/artifacts.h"

#include <array>
#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/runner.h"

namespace permafrost::train {
namespace fs = std::filesystem;

namespace {

// A folder that someone removes meanwhile is no fault of the work: the next checkpoint makes it anew.
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
  // A rename onto another name of the same file does nothing and leaves both.
  if (!error) fs::remove(temporary, error);
  if (error) return SystemError(error.value(), target, absl::StrCat("link ", source.string(), " to it"));
  return SyncDirectory(directory);
}

// As RFC 4180 has it.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string PredictionsCsv(const NamedRows& rows, const std::vector<float>& predictions) {
  const size_t columns = rows.columns.size(), width = rows.values.size();
  std::string csv = absl::StrJoin(rows.columns, ",");
  for (const std::string& value : rows.values) absl::StrAppend(&csv, ",", value);
  csv += '\n';
  std::array<char, 32> digits;
  for (size_t i = 0; i * columns < rows.names.size(); ++i) {
    for (size_t c = 0; c < columns; ++c) absl::StrAppend(&csv, c == 0 ? "" : ",", CsvCell(rows.names[i * columns + c]));
    for (size_t t = 0; t < width; ++t) {
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), predictions[i * width + t]).ptr;
      absl::StrAppend(&csv, ",", absl::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
    }
    csv += '\n';
  }
  return csv;
}

absl::Status LinkArtifact(const fs::path& source, const fs::path& job_directory, std::string_view name) {
  return TransientIfNotFound(Link(source, job_directory, name));
}

absl::Status WritePredictions(const fs::path& job_directory, const NamedRows& rows,
                              const std::vector<float>& predictions) {
  PF_RETURN_IF_ERROR(CreateDirectories(job_directory / "artifacts"));
  return TransientIfNotFound(
      WriteFileAtomic(job_directory / "artifacts" / kTestPredictionsFile, PredictionsCsv(rows, predictions)));
}

}  // namespace permafrost::train
