#include "jobs/trained_dataset.h"

#include <utility>

#include "train/checkpoint_files.h"

namespace permafrost::jobs {

bool IsOfSameData(const Job& job, const data::Dataset& dataset, const data::Catalog& catalog, const JobFiles& files) {
  // Jobs of older versions do not tell.
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
