// Copies what a backup holds beside jobs, also what changes while it is copied: datasets, imports, the audit log.
// Threads: one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/copier.h"

namespace permafrost::backup {

// Copies datasets, each as it was at one moment, and tells which is which by its uid.
class DatasetCopies {
 public:
  // Borrows the copier. `state_dir` and `backup`: those of the copier.
  DatasetCopies(const std::filesystem::path& state_dir, const std::filesystem::path& backup, Copier& copier)
      : state_dir_(state_dir), backup_(backup), copier_(copier) {}

  // All that are there. Errors, here and below: Unavailable where one is replaced faster than it can be copied; the
  // copier's.
  absl::Status CopyAll();
  // Tells whether the copy with this name belongs to the dataset with this uid. If it does not, the dataset is first
  // copied again as it is now. If the uid is empty, or the dataset's record tells none, the name alone pairs them.
  absl::StatusOr<bool> Pair(const std::string& name, const std::string& uid);

 private:
  absl::Status Copy(const std::string& name);
  bool Has(const std::string& name, const std::string& uid) const;

  const std::filesystem::path &state_dir_, &backup_;
  Copier& copier_;
  std::map<std::string, std::string> uids_;  // of the copies, by name; empty: not known
};

// The audit log and those before it (audit.jsonl, .1 ...), as far as they go now. Errors: Unavailable where they are
// rotated faster than they can be copied; the copier's.
absl::Status CopyAudit(const std::filesystem::path& state_dir, Copier& copier);

// The records of imports that have not ended well (datasets/.imports): another server begins those that were wanted
// anew, where it sees their sources. Returns their datasets, sorted. To be called before datasets are copied: one whose
// import ends meanwhile is then in the backup in one way or the other. Errors: the copier's.
absl::StatusOr<std::vector<std::string>> CopyImports(const std::filesystem::path& state_dir, Copier& copier);

}  // namespace permafrost::backup
