// Debian's Abseil has a string_view type of its own; other builds of Abseil use std's. These functions convert in
// both directions under either build.
//   absl::StrCat("field: ", AbslView(name))      StdView(status.message())
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace permafrost {

inline absl::string_view AbslView(std::string_view s) { return absl::string_view(s.data(), s.size()); }
inline std::string_view StdView(absl::string_view s) { return std::string_view(s.data(), s.size()); }

}  // namespace permafrost
