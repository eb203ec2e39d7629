// Finds out whether the dataset that a job was made of is still there.
// Threads: safe anywhere.
#pragma once

#include <optional>

#include "data/catalog/catalog.h"
#include "jobs/job.h"
#include "jobs/job_files.h"

namespace permafrost::jobs {

// True if `dataset` has the data that the job was made of. The name alone is not enough: another dataset may have taken
// it since.
bool IsOfSameData(const Job& job, const data::Dataset& dataset, const data::Catalog& catalog, const JobFiles& files);

// The dataset that the job was made of; nullopt: it is not known any more, or cannot be opened.
std::optional<data::OpenedDataset> OpenTrainedDataset(const Job& job, const data::Catalog& catalog,
                                                      const JobFiles& files);

}  // namespace permafrost::jobs
