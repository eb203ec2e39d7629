#include "base/id.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost {

absl::Status CheckIdSyntax(std::string_view field, std::string_view value) {
  constexpr std::size_t kMaxLength = 63;
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_allowed = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; };
  if (!value.empty() && value.size() <= kMaxLength && is_letter(value[0]) &&
      std::all_of(value.begin(), value.end(), is_allowed)) {
    return absl::OkStatus();
  }
  Violations violations;
  violations.Add(field, absl::StrCat("\"", absl::CHexEscape(AbslView(value.substr(0, kMaxLength + 1))),
                                     "\" is not 1 to 63 characters of a-z, 0-9 and '-' beginning with a letter"));
  return violations.ToStatus();
}

}  // namespace permafrost
