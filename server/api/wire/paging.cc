#include "api/wire/paging.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

constexpr int64_t kDefaultPageSize = 50;
constexpr int64_t kMaxPageSize = 1000;
// Tokens are opaque to clients; the prefix tells ours from any other base64.
constexpr std::string_view kDatasetPrefix = "datasets>", kUploadPrefix = "uploads>", kProgramPrefix = "programs>";

void AddTokenViolation(const std::string& token, std::string_view accepted, Violations& violations) {
  violations.Add("page_token", absl::StrCat("\"", absl::CHexEscape(token.substr(0, 96)), "\" is no next_page_token of ",
                                            AbslView(accepted), "; accepted: one, or empty"));
}

std::string PageToken(std::string_view prefix, const std::string& last) {
  return absl::WebSafeBase64Escape(absl::StrCat(AbslView(prefix), last));
}

// Empty for an empty token, and for one that `list` did not make, which is a violation.
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
    // Made again rather than taken apart: only the one true spelling passes.
    if (error == std::errc() && position > 0 && MakeEntryPageToken(job, position) == token) return position;
  }
  AddTokenViolation(token, "ListGraphCacheEntries of this job", violations);
  return 0;
}

}  // namespace permafrost::api
