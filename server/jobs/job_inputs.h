// Finds the inputs of a job's training or evaluation: weights, and the dataset that the job was trained on.
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

// Finds the file of a job's weights. Errors: NotFound; FailedPrecondition (reason ARTIFACT_NOT_READY) if the job has
// not written these weights yet.
absl::StatusOr<std::filesystem::path> FindWeightsOfJob(const JobId& job, spec::JobWeights weights, const JobBook& book);
// Finds a file of weights below an import root. Errors: InvalidArgument with a violation of `spec.init_from.file` if
// the path is not a file; PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS); NotFound.
absl::StatusOr<std::filesystem::path> FindWeightsFile(const std::string& file, const data::Catalog& catalog);
// Reads the whole file at `path`, which FindWeightsFile returned. `file` is the name in error messages. Make only one
// call at a time, since the check of the memory counts a single file. Errors:
//   InvalidArgument, with a violation of `spec.init_from.file`: the file does not begin as a safetensors file does.
//     Only the beginning is read.
//   ResourceExhausted: memory has no room for the file. Nothing is read.
//   Errors of reading the file: PermissionDenied is not transient, and other errors are those of ReadFile.
absl::StatusOr<std::string> ReadWeightsFile(const std::filesystem::path& path, const std::string& file);

// Returns the job's options in the form that the runner takes. If the job trains a program, the options name the file
// of the program's archive.
spec::TrainOptions RunnerOptions(const Job& job, const JobFiles& files);

// Returns true if `dataset` holds the data for which the job was made. The name does not tell this, because another
// dataset may have the name now.
bool IsOfSameData(const Job& job, const data::Dataset& dataset, const data::Catalog& catalog, const JobFiles& files);

// Opens the dataset for which the job was made. Returns nullopt if that dataset is no longer known or cannot be
// opened.
std::optional<data::OpenedDataset> OpenTrainedDataset(const Job& job, const data::Catalog& catalog,
                                                      const JobFiles& files);

}  // namespace permafrost::jobs
