// Watching a job until it ends.
// Threads: the caller's.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/session.h"

namespace permafrost::client {

// Draws the job's progress, prints each finished epoch and the result. `id` is with or without `jobs/`.
// `reconnect`: how long a server that goes away is waited for.
ExitCode WatchJob(Session& session, const std::string& id, absl::Duration reconnect);

}  // namespace permafrost::client
