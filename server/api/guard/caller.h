// Tells who makes a call, as audit and limits name callers.
// Threads: safe anywhere.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "access/gate.h"

namespace permafrost::api {

// The metadata that came with a call before its messages.
using CallMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Errors: Gate::Identify's.
absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata);

// Returns a check, to be asked now and then, of whether the caller of a call that goes on would still be let in. Takes
// the call as it begins.
std::function<absl::Status()> StillAdmitted(const access::Gate& gate, const grpc::ServerContextBase& context,
                                            const CallMetadata& metadata);

// Whom a limit counts a call to: the caller's name where callers are told apart, else the address that it came from, of
// other machines only. Empty: whoever reaches it is of this machine and may take all there is.
std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata);

}  // namespace permafrost::api
