#include "graphcache/command.h"

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/string_view.h"

namespace permafrost::graphcache {
namespace {

struct CommandSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<PolicyUpdate>& u) {
    a("policy", u.policy, spec::kPolicyNames);
    a("freeze_at", u.freeze_at);
    a("on_miss", u.on_miss, spec::kOnMissNames);
    a("shapes", u.shapes, spec::kShapesNames);
    a("rungs", u.rungs);
    a("audit_every", u.audit_every);
    a("strict", u.strict);
    a("max_executables", u.max_executables);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<Command>& c) {
    a("sequence", c.sequence);
    a("kind", c.kind, kCommandNames);
    a("update", c.update);
    a("step", c.step);
  }
};

absl::Status CheckUpdate(const PolicyUpdate& update, const spec::PolicyOptions& options) {
  Violations violations;
  if (update == PolicyUpdate()) {
    violations.Add("policy",
                   "changes nothing: accepted: at least one of policy, freeze_at, on_miss, shapes, rungs, audit_every, "
                   "strict and max_executables");
  }
  Validate(Updated(options, update), "policy.", violations);
  return violations.ToStatus();
}

}  // namespace

spec::PolicyOptions Updated(const spec::PolicyOptions& options, const PolicyUpdate& update) {
  return {.policy = update.policy.value_or(options.policy),
          .freeze_at = update.freeze_at.value_or(options.freeze_at),
          .on_miss = update.on_miss.value_or(options.on_miss),
          .shapes = update.shapes.value_or(options.shapes),
          .rungs = update.rungs.value_or(options.rungs),
          .audit_every = update.audit_every.value_or(options.audit_every),
          .strict = update.strict.value_or(options.strict),
          .max_executables = update.max_executables.value_or(options.max_executables)};
}

absl::Status Check(const Command& command, const spec::PolicyOptions& options) {
  switch (command.kind) {
    case CommandKind::kUpdatePolicy:
      return CheckUpdate(command.update, options);
    case CommandKind::kFreeze:
    case CommandKind::kThaw:
      if (KeepsNothing(options.policy)) {
        return WithReason(absl::FailedPreconditionError(absl::StrCat(
                              "policy ", AbslView(spec::kPolicyNames.Name(options.policy)), " keeps nothing to ",
                              AbslView(kCommandNames.Name(command.kind)), "; use it under always or freeze")),
                          "GRAPH_CACHE_KEEPS_NOTHING",
                          {{"policy", std::string(spec::kPolicyNames.Name(options.policy))}});
      }
      return absl::OkStatus();
    case CommandKind::kClear:
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError("the command is of no known kind");
}

std::string ToJson(const Command& command) { return WriteJson<CommandSchema>(command); }

absl::StatusOr<Command> CommandFromJson(const std::string& text) {
  return ReadJson<CommandSchema, Command>("graph cache command", text);
}

}  // namespace permafrost::graphcache
