#include "graphcache/policy.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::graphcache {

void Validate(const PolicyOptions& options, std::string_view prefix, Violations& violations) {
  if (options.freeze_at < 0 || options.freeze_at > kMaxFreezeAt) {
    violations.Add(absl::StrCat(AbslView(prefix), "freeze_at"),
                   absl::StrCat(options.freeze_at, " is outside 1..", kMaxFreezeAt, ", or 0 to derive it"));
  }
  if (options.rungs < 0 || options.rungs > kMaxRungs) {
    violations.Add(absl::StrCat(AbslView(prefix), "rungs"),
                   absl::StrCat(options.rungs, " is outside 1..", kMaxRungs, ", or 0 for ", kDefaultRungs));
  }
}

}  // namespace permafrost::graphcache
