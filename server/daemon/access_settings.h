// The settings that say who may call and how connections are protected, and which of them fit together.
// Threads: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/options.h"
#include "daemon/settings.h"

namespace permafrost {

void AddAccessSettings(std::vector<Setting>& settings);

// Returns where the value of a setting stands: "--listen", "PERMAFROST_LISTEN", "default of --listen".
using WhereOf = std::function<std::string(const std::string& name)>;
// Resolves Auth::kAuto. Errors: InvalidArgument for an address that other machines reach without TLS or without tokens,
// unless `insecure`; for tokens over plain text there, which nothing allows; for a certificate without its key, and
// what speaks of client certificates where there are none.
absl::Status CheckAccess(Options& options, const WhereOf& where);

}  // namespace permafrost
