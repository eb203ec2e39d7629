#include "api/wire/resource_name.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

// The form of a name: the text before the id, the word for the id in errors, and the text after the id.
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

namespace {

constexpr int64_t kDefaultPageSize = 50;
constexpr int64_t kMaxPageSize = 1000;
// Tokens are opaque to clients. The prefix distinguishes them from other base64 text.
constexpr std::string_view kDatasetPrefix = "datasets>", kUploadPrefix = "uploads>", kProgramPrefix = "programs>";

void AddTokenViolation(const std::string& token, std::string_view accepted, Violations& violations) {
  violations.Add("page_token", absl::StrCat("\"", absl::CHexEscape(token.substr(0, 96)), "\" is no next_page_token of ",
                                            AbslView(accepted), "; accepted: one, or empty"));
}

std::string PageToken(std::string_view prefix, const std::string& last) {
  return absl::WebSafeBase64Escape(absl::StrCat(AbslView(prefix), last));
}

// Returns the id in a page token, or an empty id for an empty token. For a token that `list` did not make, adds a
// violation and returns an empty id.
std::string ReadPageToken(const std::string& token, std::string_view prefix, std::string_view list,
                          Violations& violations) {
  if (token.empty()) return "";
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text) && text.compare(0, prefix.size(), prefix) == 0) {
    std::string id = text.substr(prefix.size());
    if (CheckIdSyntax("page_token", id).ok()) return id;
  }
  AddTokenViolation(token, list, violations);
  return "";
}

}  // namespace

int64_t ReadPageSize(int32_t requested, Violations& violations) {
  if (requested < 0) violations.Add("page_size", absl::StrCat(requested, " is below 0; accepted: 0 to 1000"));
  return requested <= 0 ? kDefaultPageSize : std::min<int64_t>(requested, kMaxPageSize);
}

std::string MakeDatasetPageToken(const DatasetId& last) { return PageToken(kDatasetPrefix, last.value()); }

DatasetId ReadDatasetPageToken(const std::string& token, Violations& violations) {
  return DatasetId(ReadPageToken(token, kDatasetPrefix, "ListDatasets", violations));
}

std::string MakeUploadPageToken(const UploadId& last) { return PageToken(kUploadPrefix, last.value()); }

UploadId ReadUploadPageToken(const std::string& token, Violations& violations) {
  return UploadId(ReadPageToken(token, kUploadPrefix, "ListUploads", violations));
}

std::string MakeProgramPageToken(const ProgramId& last) { return PageToken(kProgramPrefix, last.value()); }

ProgramId ReadProgramPageToken(const std::string& token, Violations& violations) {
  return ProgramId(ReadPageToken(token, kProgramPrefix, "ListPrograms", violations));
}

std::string MakeEntryPageToken(const JobId& job, int64_t position) {
  const std::string checksum = HashHex(Hash64(absl::StrCat("entries-page-1 ", job.value(), " ", position)));
  return absl::WebSafeBase64Escape(absl::StrCat(position, ".", checksum));
}

int64_t ReadEntryPageToken(const std::string& token, const JobId& job, Violations& violations) {
  if (token.empty()) return 0;
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    int64_t position = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
    // Makes the token again and compares, so that only the canonical spelling of a position passes.
    if (error == std::errc() && position > 0 && MakeEntryPageToken(job, position) == token) return position;
  }
  AddTokenViolation(token, "ListGraphCacheEntries of this job", violations);
  return 0;
}

}  // namespace permafrost::api
