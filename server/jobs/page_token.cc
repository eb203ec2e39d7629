#include "jobs/page_token.h"

#include <charconv>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace permafrost::jobs {
namespace {

// Covers the sequence and the query at once: a token for other states is as foreign as a made-up one.
std::string Checksum(int64_t sequence, const JobQuery& query) {
  const std::set<JobState> states(query.states.begin(), query.states.end());
  std::string text = absl::StrCat("jobs-page-1 ", sequence);
  for (const JobState state : states) absl::StrAppend(&text, " ", std::string(kJobStateNames.Name(state)));
  if (!query.filter.empty()) absl::StrAppend(&text, "\n", query.filter);
  return HashHex(Hash64(text));
}

}  // namespace

std::string MakePageToken(int64_t sequence, const JobQuery& query) {
  return absl::WebSafeBase64Escape(absl::StrCat(sequence, ".", Checksum(sequence, query)));
}

absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobQuery& query) {
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    int64_t sequence = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sequence);
    // Made again rather than taken apart: only the one true spelling passes.
    if (error == std::errc() && MakePageToken(sequence, query) == token) return sequence;
  }
  Violations violations;
  violations.Add("page_token",
                 "was not given by a list of the same states and filter; leave it empty for the first page");
  return violations.ToStatus();
}

}  // namespace permafrost::jobs
