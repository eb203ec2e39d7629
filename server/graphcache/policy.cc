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
  if (options.audit_every < 0 || options.audit_every > kMaxAuditEvery) {
    violations.Add(absl::StrCat(AbslView(prefix), "audit_every"),
                   absl::StrCat(options.audit_every, " is outside 1..", kMaxAuditEvery, ", or 0 for no audits"));
  }
  if (options.max_executables < 0 || options.max_executables > kMaxExecutables) {
    violations.Add(absl::StrCat(AbslView(prefix), "max_executables"),
                   absl::StrCat(options.max_executables, " is outside 1..", kMaxExecutables, ", or 0 for no limit"));
  }
  if (options.strict && KeepsNothing(options.policy)) {
    violations.Add(absl::StrCat(AbslView(prefix), "strict"),
                   absl::StrCat("policy ", AbslView(kPolicyNames.Name(options.policy)),
                                " keeps nothing, so that there is nothing to be strict about; accepted: strict under "
                                "always or freeze"));
  }
}

}  // namespace permafrost::graphcache
