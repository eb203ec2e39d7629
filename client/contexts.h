// Named servers in the user's configuration, and the choice of the server that a command talks to.
// Threads: one; ResolveServer is pure.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/credentials.h"

namespace permafrost::client {

struct Contexts {
  std::map<std::string, std::string> servers;  // HOST:PORT by context name
  std::string current;                         // empty if no context is current
  // Credential files by context name. A context without credential files is absent. Only paths are kept, so no token
  // is stored here.
  std::map<std::string, CredentialFiles> credentials;
};

// Returns $XDG_CONFIG_HOME/permafrost/config.json, or $HOME/.config/permafrost/config.json if XDG_CONFIG_HOME is
// unset. Returns an empty path if neither variable is set.
std::string ContextsPath();
// Returns no contexts if there is no file. Errors: InvalidArgument that names the file and its fault, or the system's
// reason if the file cannot be read.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
// Replaces the whole file, but keeps keys of the file that this client does not know.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);
// Returns whether `name` may name a context: 1 to 63 letters, digits and ._-, the first a letter or a digit.
bool IsContextName(const std::string& name);

// Returns "known: a, b", or how to make a context if there is none.
std::string KnownContexts(const Contexts& contexts);

// The values that name a server on the command line and in the environment. A value that is not given is empty.
struct ServerWish {
  std::string server, context, environment;
};

// Returns the server that is given first in this order: --server, --context, PERMAFROST_SERVER, the current context.
// If none is given, returns `otherwise`. Errors: InvalidArgument for an unknown context.
absl::StatusOr<std::string> ResolveServer(const ServerWish& wish, const Contexts& contexts,
                                          const std::string& otherwise);
// Returns the credential files of the context that ResolveServer uses. All are empty if it uses no context.
CredentialFiles ResolveCredentials(const ServerWish& wish, const Contexts& contexts);

}  // namespace permafrost::client
