#include "api/resource_name.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

constexpr std::string_view kJobs = "jobs/";
constexpr std::string_view kDatasets = "datasets/";

absl::StatusOr<std::string> Parse(std::string_view collection, std::string_view placeholder, std::string_view field,
                                  std::string_view name) {
  if (name.substr(0, collection.size()) == collection) {
    const std::string_view id = name.substr(collection.size());
    if (CheckIdSyntax(field, id).ok()) return std::string(id);
  }
  Violations violations;
  violations.Add(field, absl::StrCat("\"", absl::CHexEscape(AbslView(name.substr(0, 96))), "\" is not ",
                                     AbslView(collection), AbslView(placeholder), " with ", AbslView(placeholder),
                                     " of 1 to 63 characters of a-z, 0-9 and '-' beginning with a letter"));
  return violations.ToStatus();
}

}  // namespace

absl::StatusOr<JobId> ParseJobName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kJobs, "ID", field, name));
  return JobId(std::move(id));
}

absl::StatusOr<DatasetId> ParseDatasetName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kDatasets, "NAME", field, name));
  return DatasetId(std::move(id));
}

std::string FormatJobName(const JobId& id) { return absl::StrCat(AbslView(kJobs), id.value()); }
std::string FormatDatasetName(const DatasetId& id) { return absl::StrCat(AbslView(kDatasets), id.value()); }

}  // namespace permafrost::api
