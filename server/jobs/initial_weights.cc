#include "jobs/initial_weights.h"

#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/runner.h"

namespace permafrost::jobs {
namespace fs = std::filesystem;
namespace {

// As safetensors' own reader bounds it.
constexpr uint64_t kMostHeaderBytes = 100'000'000;

}  // namespace

absl::StatusOr<fs::path> FindWeightsOfJob(const JobId& job, train::JobWeights weights, const JobBook& book) {
  PF_RETURN_IF_ERROR(book.Get(job, std::numeric_limits<int64_t>::max()).status());
  const bool best = weights == train::JobWeights::kBest;
  fs::path path =
      book.files().Directory(job) / "artifacts" / (best ? train::kBestWeightsFile : train::kLastWeightsFile);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.value(), " has not made its ",
                                                 AbslView(train::kJobWeightsNames.Name(weights)), " weights yet")),
      "ARTIFACT_NOT_READY", {{"job", job.value()}});
}

absl::StatusOr<std::string> ReadWeightsFile(const fs::path& path, const std::string& file) {
  std::array<unsigned char, 8> begin{};
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  const bool is_read =
      std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(begin.data()), begin.size()).good();
  uint64_t header = 0;
  for (size_t i = begin.size(); i > 0; --i) header = header << 8 | begin[i - 1];
  // What cannot be read is told by the reading below.
  if (!error && (is_read || size < begin.size()) && (header > kMostHeaderBytes || size < begin.size() + header)) {
    Violations violations;
    violations.Add("spec.init_from.file", absl::StrCat("'", file,
                                                       "' does not begin as a safetensors file does; accepted: a "
                                                       "safetensors file"));
    return violations.ToStatus();
  }
  absl::StatusOr<std::string> content = ReadFile(path);
  // The daemon may try as often as it will.
  if (absl::IsPermissionDenied(content.status())) return absl::PermissionDeniedError(content.status().message());
  return content;
}

absl::StatusOr<fs::path> FindWeightsFile(const std::string& file, const data::Catalog& catalog) {
  absl::StatusOr<fs::path> path = catalog.Resolve(file);
  std::error_code error;
  if (path.ok() && fs::is_regular_file(*path, error)) return path;
  if (!path.ok() && !absl::IsInvalidArgument(path.status())) return path.status();
  Violations violations;
  violations.Add("spec.init_from.file", absl::StrCat("'", file, "' is no file; accepted: a safetensors file"));
  return violations.ToStatus();
}

}  // namespace permafrost::jobs
