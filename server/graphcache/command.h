// Commands of a client to the cache of a running job.
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

// Fields that are absent stay as they are. A new policy, freeze_at, shapes or rungs thaws the cache, and kFreeze
// freezes it again at its freeze point; a policy that keeps nothing (kNever, kClearPerStep) also drops every
// executable, and a change between dynamic, ladder and exact shapes, or to another ladder, those of before. A new
// max_executables cuts or extends what is planned: a ladder of other rungs takes the place of the one before, and a
// frozen cache captures it before the next step. Where a new on_miss means that other shapes are sealed with, a
// frozen cache of exact shapes captures those before the next step. A new audit_every or strict alone changes nothing
// else.
using spec::PolicyUpdate;

struct Command {
  int64_t sequence = 0;  // order among the job's commands, from 1
  CommandKind kind = CommandKind::kFreeze;
  PolicyUpdate update;  // of kUpdatePolicy
  // Optimizer steps done when it takes effect; nullopt: it has not been given a step yet.
  std::optional<int64_t> step;
  bool operator==(const Command&) const = default;
};

using spec::Updated;

// Ok if `command` makes sense for a cache under `options`: InvalidArgument with violations (fields "policy.freeze_at")
// for an update out of range or without any field; FailedPrecondition (reason GRAPH_CACHE_KEEPS_NOTHING) for a freeze
// or thaw under kNever or kClearPerStep.
absl::Status Check(const Command& command, const spec::PolicyOptions& options);

std::string ToJson(const Command& command);
absl::StatusOr<Command> CommandFromJson(const std::string& text);

}  // namespace permafrost::graphcache
