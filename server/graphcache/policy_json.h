// The fields of a policy in JSON: of job rows and of checkpoints.
// Threads: a pure function.
#pragma once

#include "graphcache/policy.h"

namespace permafrost::graphcache {

// A: a JsonWriter or JsonReader (base/json_fields.h); Options: PolicyOptions, const for the first. Fields may be added:
// what a text lacks keeps its default.
template <class A, class Options>
void PolicyFields(A& a, Options& options) {
  a("policy", options.policy, kPolicyNames);
  a("freeze_at", options.freeze_at);
  a("on_miss", options.on_miss, kOnMissNames);
  a("shapes", options.shapes, kShapesNames);
  a("rungs", options.rungs);
  a("audit_every", options.audit_every);
  a("strict", options.strict);
  a("max_executables", options.max_executables);
}

}  // namespace permafrost::graphcache
