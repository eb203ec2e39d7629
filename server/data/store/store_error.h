// Errors of a store's reader that say what does not add up. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/store/format.h"

namespace permafrost::data {

// "field: is A, expected B".
template <class A, class B>
absl::Status Mismatch(std::string_view field, const A& is, const B& expected) {
  return absl::DataLossError(absl::StrCat(AbslView(field), ": is ", is, ", expected ", expected));
}

inline std::string SectionField(SectionKind kind, std::string_view field) {
  return absl::StrCat("section ", AbslView(kSectionNames.Name(kind)), ": ", AbslView(field));
}

}  // namespace permafrost::data
