#include "jobs/initial_weights.h"

#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/runner.h"

namespace permafrost::jobs {
namespace fs = std::filesystem;

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
