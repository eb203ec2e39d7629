#include "api/wire/resource_name.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

// The forms of names: what stands before the id, what the form calls it, what stands after it.
struct Form {
  std::string_view before, id, after;
};
constexpr Form kJob{"jobs/", "ID", ""};
constexpr Form kGraphCache{"jobs/", "ID", "/graphCache"};
constexpr Form kDataset{"datasets/", "NAME", ""};
constexpr Form kUploadForm{"uploads/", "ID", ""};
constexpr Form kProgram{"programs/", "NAME", ""};

absl::StatusOr<std::string> Parse(const Form& form, std::string_view field, std::string_view name) {
  const absl::string_view text = AbslView(name);
  if (absl::string_view id = text;
      absl::ConsumePrefix(&id, AbslView(form.before)) && absl::ConsumeSuffix(&id, AbslView(form.after))) {
    if (CheckIdSyntax(field, StdView(id)).ok()) return std::string(id);
  }
  const absl::string_view placeholder = AbslView(form.id);
  Violations violations;
  violations.Add(field, absl::StrCat("\"", absl::CHexEscape(text.substr(0, 96)), "\" is not ", AbslView(form.before),
                                     placeholder, AbslView(form.after), " with ", placeholder,
                                     " of 1 to 63 characters of a-z, 0-9 and '-' beginning with a letter"));
  return violations.ToStatus();
}

std::string Format(const Form& form, const std::string& id) {
  return absl::StrCat(AbslView(form.before), id, AbslView(form.after));
}

}  // namespace

absl::StatusOr<JobId> ParseJobName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kJob, field, name));
  return JobId(std::move(id));
}

absl::StatusOr<JobId> ParseGraphCacheName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kGraphCache, field, name));
  return JobId(std::move(id));
}

absl::StatusOr<DatasetId> ParseDatasetName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kDataset, field, name));
  return DatasetId(std::move(id));
}

absl::StatusOr<UploadId> ParseUploadName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kUploadForm, field, name));
  return UploadId(std::move(id));
}

absl::StatusOr<ProgramId> ParseProgramName(std::string_view field, std::string_view name) {
  PF_ASSIGN_OR_RETURN(std::string id, Parse(kProgram, field, name));
  return ProgramId(std::move(id));
}

std::string FormatJobName(const JobId& id) { return Format(kJob, id.value()); }
std::string FormatGraphCacheName(const JobId& job) { return Format(kGraphCache, job.value()); }
std::string FormatUploadName(const UploadId& id) { return Format(kUploadForm, id.value()); }
std::string FormatDatasetName(const DatasetId& id) { return Format(kDataset, id.value()); }

std::string FormatProgramName(const ProgramId& id) { return Format(kProgram, id.value()); }

}  // namespace permafrost::api
