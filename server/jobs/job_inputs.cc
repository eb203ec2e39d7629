#include "jobs/job_inputs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/checkpoint_files.h"
#include "train/runner.h"

namespace permafrost::jobs {
namespace fs = std::filesystem;
namespace {

// The largest header that is accepted, as in the safetensors library.
constexpr uint64_t kMostHeaderBytes = 100'000'000;
// A file of at most this size is read even if the process seems to hold all memory. The memory that it holds includes
// mapped datasets, which the kernel can reclaim.
constexpr uint64_t kAlwaysReadBytes = uint64_t{64} << 20;

// Checks that the file's bytes, and the tensors made from them, fit into the memory that the process does not hold.
absl::Status CheckRoomFor(uint64_t bytes, const std::string& file) {
  const uint64_t limit = MemoryLimit(), held = ResidentBytes();
  if (bytes <= std::max(kAlwaysReadBytes, (limit - std::min(held, limit)) / 2)) return absl::OkStatus();
  const auto megabytes = [](uint64_t of) { return absl::StrCat((of + 999'999) / 1'000'000, " MB"); };
  return absl::ResourceExhaustedError(absl::StrCat("spec.init_from.file: '", file, "' has ", megabytes(bytes),
                                                   ", which are held twice to be read, beside the ", megabytes(held),
                                                   " that the server holds, and its limit is ", megabytes(limit),
                                                   "; accepted: a file of the model's weights alone"));
}

}  // namespace

absl::StatusOr<fs::path> FindWeightsOfJob(const JobId& job, spec::JobWeights weights, const JobBook& book) {
  PF_RETURN_IF_ERROR(book.Get(job, kNoEpochs).status());
  const bool best = weights == spec::JobWeights::kBest;
  fs::path path =
      book.files().Directory(job) / "artifacts" / (best ? train::kBestWeightsFile : train::kLastWeightsFile);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.value(), " has not made its ",
                                                 AbslView(spec::kJobWeightsNames.Name(weights)), " weights yet")),
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
  // If the file cannot be read, ReadFile below reports it.
  if (!error && (is_read || size < begin.size()) && (header > kMostHeaderBytes || size < begin.size() + header)) {
    Violations violations;
    violations.Add("spec.init_from.file", absl::StrCat("'", file,
                                                       "' does not begin as a safetensors file does; accepted: a "
                                                       "safetensors file"));
    return violations.ToStatus();
  }
  if (!error) PF_RETURN_IF_ERROR(CheckRoomFor(size, file));
  absl::StatusOr<std::string> content = ReadFile(path);
  // The error is not transient, because retries do not help until the file's owner permits the reading.
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

spec::TrainOptions RunnerOptions(const Job& job, const JobFiles& files) {
  spec::TrainOptions options = job.spec.train;
  if (spec::IsProgram(options)) options.model.program_file = files.Directory(job.id) / train::kProgramFile;
  return options;
}

bool IsOfSameData(const Job& job, const data::Dataset& dataset, const data::Catalog& catalog, const JobFiles& files) {
  // Jobs of older versions do not record the uid.
  if (job.dataset_uid.empty() || dataset.uid == job.dataset_uid) return true;
  const auto checkpoints =
      train::ListCheckpoints(files.Directory(job.id) / train::kCheckpointsFolder, /*verify=*/false);
  if (!checkpoints.ok()) return false;
  for (const train::CheckpointInfo& info : *checkpoints) {
    if (!info.damage.empty() || info.dataset_checksum == 0) continue;
    const auto opened = catalog.Open(dataset.id);
    return opened.ok() && (info.dataset_checksum == data::ContentChecksumOf(*opened) ||
                           info.dataset_checksum == data::ChecksumOf(*opened));
  }
  return false;
}

std::optional<data::OpenedDataset> OpenTrainedDataset(const Job& job, const data::Catalog& catalog,
                                                      const JobFiles& files) {
  const absl::StatusOr<data::Dataset> known = catalog.Get(job.spec.train.dataset);
  if (!known.ok() || !IsOfSameData(job, *known, catalog, files)) return std::nullopt;
  absl::StatusOr<data::OpenedDataset> opened = catalog.Open(known->id);
  if (!opened.ok()) return std::nullopt;
  return *std::move(opened);
}

}  // namespace permafrost::jobs
