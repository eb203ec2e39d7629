// Finds what a job is trained or evaluated with: weights to begin with or to evaluate, and the dataset that it was made
// of.
// Threads: safe anywhere.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "data/catalog/catalog.h"
#include "jobs/job.h"
#include "jobs/job_book.h"
#include "jobs/job_files.h"
#include "spec/train_options.h"

namespace permafrost::jobs {

// Finds a job's weights. Errors: NotFound; FailedPrecondition (reason ARTIFACT_NOT_READY) while it has not made them.
absl::StatusOr<std::filesystem::path> FindWeightsOfJob(const JobId& job, spec::JobWeights weights, const JobBook& book);
// Finds a file of weights below an import root. Errors: InvalidArgument with a violation of `spec.init_from.file` for
// what is no file; PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS); NotFound.
absl::StatusOr<std::filesystem::path> FindWeightsFile(const std::string& file, const data::Catalog& catalog);
// All of what FindWeightsFile found, which a caller calls `file`. Errors: InvalidArgument with a violation of
// `spec.init_from.file` for what does not begin as a safetensors file, of which no more is read; ResourceExhausted, and
// nothing is read, for more than memory has room for, as long as one is read at a time; those of reading, which its
// owner mends.
absl::StatusOr<std::string> ReadWeightsFile(const std::filesystem::path& path, const std::string& file);

// The options as the runner takes them: with the place of its program's archive, if the job trains one.
spec::TrainOptions RunnerOptions(const Job& job, const JobFiles& files);

// True if `dataset` has the data that the job was made of. The name alone is not enough: another dataset may have taken
// it since.
bool IsOfSameData(const Job& job, const data::Dataset& dataset, const data::Catalog& catalog, const JobFiles& files);

// The dataset that the job was made of; nullopt: it is not known any more, or cannot be opened.
std::optional<data::OpenedDataset> OpenTrainedDataset(const Job& job, const data::Catalog& catalog,
                                                      const JobFiles& files);

}  // namespace permafrost::jobs
