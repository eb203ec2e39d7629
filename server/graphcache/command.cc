#include "graphcache/command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_fields.h"
#include "base/string_view.h"
#include "spec/field.h"

namespace permafrost::graphcache {
namespace {

struct CommandSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<PolicyUpdate>& u) {
    spec::StoredFields(a, u);
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
    std::vector<std::string> fields;
    VisitFields(spec::Options<PolicyUpdate>(),
                [&](const spec::Field& field, const auto&...) { fields.emplace_back(field.name); });
    const std::string last = fields.back();
    fields.pop_back();
    violations.Add("policy", absl::StrCat("changes nothing: accepted: at least one of ", absl::StrJoin(fields, ", "),
                                          " and ", last));
  }
  Validate(Updated(options, update), "policy.", violations);
  return violations.ToStatus();
}

}  // namespace

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
