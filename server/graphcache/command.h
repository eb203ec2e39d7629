// Commands that a client gives to the graph cache of a running job.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

enum class CommandKind { kUpdatePolicy, kFreeze, kThaw, kClear };
inline constexpr EnumNames<CommandKind, 4> kCommandNames{{{{CommandKind::kUpdatePolicy, "policy"},
                                                           {CommandKind::kFreeze, "freeze"},
                                                           {CommandKind::kThaw, "thaw"},
                                                           {CommandKind::kClear, "clear"}}}};

// A change of the policy. Absent fields stay as they are.
// A new policy, freeze_at, shapes or rungs thaws the cache. Under kFreeze, the cache then freezes again at its freeze
// point. A policy that keeps nothing (kNever, kClearPerStep) also drops every executable. A change between dynamic,
// ladder and exact shapes, or to another ladder, drops the executables that it replaces.
// A new max_executables removes planned executables or adds some. If the ladder gets other rungs, the executables of
// the old ladder are dropped, and a frozen cache captures the new rungs before the next step. A new on_miss can
// change the shapes with which a cache of exact shapes is sealed. Before the next step, a frozen cache captures the
// shapes that it lacks.
// A new audit_every or strict changes nothing else.
using spec::PolicyUpdate;

struct Command {
  int64_t sequence = 0;  // position among the job's commands, from 1
  CommandKind kind = CommandKind::kFreeze;
  PolicyUpdate update;  // for kUpdatePolicy
  // The number of optimizer steps done when the command takes effect; nullopt until that number is decided.
  std::optional<int64_t> step;
  bool operator==(const Command&) const = default;
};

using spec::Updated;

// Checks that a cache with `options` can carry out `command`.
// Errors: InvalidArgument with violations (fields such as "policy.freeze_at") for an update with a value out of range
// or without any field. FailedPrecondition (reason GRAPH_CACHE_KEEPS_NOTHING) for a freeze or thaw under kNever or
// kClearPerStep.
absl::Status Check(const Command& command, const spec::PolicyOptions& options);

std::string ToJson(const Command& command);
absl::StatusOr<Command> CommandFromJson(const std::string& text);

}  // namespace permafrost::graphcache
