// Flags that say a graph cache's policy, for a new job and for one that runs.
// Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "permafrost/v1/graph_cache.pb.h"

namespace permafrost::client {

struct CachePolicyFlags {
  std::optional<std::string> policy, on_miss, shapes;
  // 0: derived from the dataset.
  std::optional<int64_t> freeze_at;
  // 0: the server's choice.
  std::optional<int64_t> rungs;
  // 0: no audits; no limit.
  std::optional<int64_t> audit_every, max_executables;
  std::optional<bool> strict;

  bool any() const {
    return policy || on_miss || shapes || freeze_at || rungs || audit_every || max_executables || strict;
  }
};

// `policy_flag` is "--policy" or what it is called among other flags; the others have one name. `absent`
// says what becomes of a flag that is not given, `no_freeze_at` of --freeze-at.
void AddCachePolicyOptions(CLI::App& command, const std::string& policy_flag, const std::string& absent,
                           const std::string& no_freeze_at, CachePolicyFlags& flags);

// Overwrites what flags say.
void Override(const CachePolicyFlags& flags, v1::GraphCachePolicy& policy);

}  // namespace permafrost::client
