// Debian's Abseil is built with a string_view of its own, others' is std's: these two convert either way on both.
//   absl::StrCat("field: ", AbslView(name))      StdView(status.message())
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace permafrost {

inline absl::string_view AbslView(std::string_view s) { return absl::string_view(s.data(), s.size()); }
inline std::string_view StdView(absl::string_view s) { return std::string_view(s.data(), s.size()); }

}  // namespace permafrost
