#include "data/catalog/catalog_errors.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {

absl::Status NotFoundError(const DatasetId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("datasets/", id.value(), ": not found")), "DATASET_NOT_FOUND",
                    {{"dataset", id.value()}});
}

absl::Status AlreadyExistsError(const DatasetId& id, std::string_view why) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("datasets/", id.value(), ": ", AbslView(why))),
                    "DATASET_ALREADY_EXISTS", {{"dataset", id.value()}});
}

absl::Status NotReadyError(const Dataset& dataset) {
  const std::string& id = dataset.id.value();
  return WithReason(absl::FailedPreconditionError(
                        absl::StrCat("datasets/", id, ": is ", AbslView(kDatasetStateNames.Name(dataset.state)),
                                     ", not ready", dataset.error.empty() ? "" : ": ", dataset.error)),
                    "DATASET_NOT_READY", {{"dataset", id}});
}

absl::Status EtagError(const Dataset& dataset, std::string_view wanted) {
  const std::string& id = dataset.id.value();
  return WithReason(absl::AbortedError(absl::StrCat("datasets/", id, ": has changed since: its etag is ",
                                                    EtagOf(dataset), ", not ", AbslView(wanted))),
                    "ETAG_MISMATCH", {{"dataset", id}});
}

}  // namespace permafrost::data
