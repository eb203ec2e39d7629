// Named servers in the user's configuration, and which server a command is for.
// Threads: one; ResolveServer is pure.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/credentials.h"

namespace permafrost::client {

struct Contexts {
  std::map<std::string, std::string> servers;  // HOST:PORT by name
  std::string current;                         // empty: none
  // Credential files of the contexts that name any, by context. Only paths are kept: no context holds a token itself.
  std::map<std::string, CredentialFiles> credentials;
};

// $XDG_CONFIG_HOME/permafrost/config.json, below $HOME/.config without that variable; empty where neither is set.
std::string ContextsPath();
// None where there is no file. Errors: InvalidArgument that names the file and what is wrong in it; the system's reason
// where it cannot be read.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
// Replaces the file whole; keys of it that are not known here stay.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);
// Returns whether a context may be called so: 1..63 letters, digits and ._-, the first no ._-
bool IsContextName(const std::string& name);

// Returns "known: a, b", or how to make a context if there is none.
std::string KnownContexts(const Contexts& contexts);

// The values that name a server on the command line and in the environment; empty: not given.
struct ServerWish {
  std::string server, context, environment;
};

// Returns the first that is given of --server, --context, PERMAFROST_SERVER and the current context; else `otherwise`.
// Errors: InvalidArgument for an unknown context.
absl::StatusOr<std::string> ResolveServer(const ServerWish& wish, const Contexts& contexts,
                                          const std::string& otherwise);
// Returns the files of the context that ResolveServer takes; none if it takes none.
CredentialFiles ResolveCredentials(const ServerWish& wish, const Contexts& contexts);

}  // namespace permafrost::client
