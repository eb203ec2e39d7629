#include "spec/policy.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "spec/checks.h"

namespace permafrost::spec {

PolicyOptions Updated(PolicyOptions options, const PolicyUpdate& update) {
  VisitPolicy([&](const Field& /*field*/, auto option, auto change, const auto&... /*names*/) {
    if (update.*change) options.*option = *(update.*change);
  });
  return options;
}

PolicyOptions WithoutPadding(PolicyOptions options) {
  if (options.on_miss == OnMiss::kPad) options.on_miss = OnMiss::kEager;
  if (options.shapes == Shapes::kLadder) options.shapes = Shapes::kExact;
  return options;
}

void Validate(const PolicyOptions& options, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  RowCheck(check, nullptr).Visit(options, options);
  CheckStrict(options, prefix, violations);
}

void CheckStrict(const PolicyOptions& options, std::string_view prefix, Violations& violations) {
  if (options.strict && KeepsNothing(options.policy)) {
    violations.Add(absl::StrCat(AbslView(prefix), "strict"),
                   absl::StrCat("policy ", AbslView(kPolicyNames.Name(options.policy)),
                                " keeps nothing, so that there is nothing to be strict about; accepted: strict under "
                                "always or freeze"));
  }
}

}  // namespace permafrost::spec
