// What a client may tell a running job's cache.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "graphcache/policy.h"

namespace permafrost::graphcache {

enum class CommandKind { kUpdatePolicy, kFreeze, kThaw, kClear };
inline constexpr EnumNames<CommandKind, 4> kCommandNames{{{{CommandKind::kUpdatePolicy, "policy"},
                                                           {CommandKind::kFreeze, "freeze"},
                                                           {CommandKind::kThaw, "thaw"},
                                                           {CommandKind::kClear, "clear"}}}};

// What is absent stays as it is. A policy or a freeze_at drops what would not be kept (never, clear-per-step:
// everything), thaws, and arms kFreeze again; on_miss alone does none of that.
struct PolicyUpdate {
  std::optional<Policy> policy;
  std::optional<int64_t> freeze_at;  // 0: derived from the dataset
  std::optional<OnMiss> on_miss;
  bool operator==(const PolicyUpdate&) const = default;
};

struct Command {
  int64_t sequence = 0;  // order among the job's commands, from 1
  CommandKind kind = CommandKind::kFreeze;
  PolicyUpdate update;  // of kUpdatePolicy
  // Optimizer steps done when it takes effect; nullopt: not yet known.
  std::optional<int64_t> step;
  bool operator==(const Command&) const = default;
};

// `options` with the update.
PolicyOptions Updated(const PolicyOptions& options, const PolicyUpdate& update);

// Ok if `command` makes sense for a cache under `options`: InvalidArgument with violations (fields "policy.freeze_at")
// for an update out of range or without any field; FailedPrecondition (reason GRAPH_CACHE_KEEPS_NOTHING) for a freeze
// or thaw under kNever or kClearPerStep.
absl::Status Check(const Command& command, const PolicyOptions& options);

std::string ToJson(const Command& command);
absl::StatusOr<Command> CommandFromJson(const std::string& text);

}  // namespace permafrost::graphcache
