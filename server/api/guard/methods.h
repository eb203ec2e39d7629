// The methods that the server answers, read from the contract: who may call each, and the name it is counted under.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/token_store.h"

namespace google::protobuf {
class MethodDescriptor;
}

namespace permafrost::api {

struct Method {
  // The name that it is counted under: "JobService/CreateJob".
  std::string label;
  // It streams, in either direction.
  bool streams = false;
  // The least role that may call it; nullopt: anyone may, without a token.
  std::optional<access::Role> least_role;
  // It changes something, and its calls are audited.
  bool changes = false;
};

// Reads the method's option `permafrost.v1.access`. A method without a role in it needs an admin.
Method MethodFromContract(const google::protobuf::MethodDescriptor& method);

// Returns the method of a path on the wire, "/permafrost.v1.JobService/CreateJob". A path that is neither the
// contract's nor health's needs a viewer, as reflection does, and counts as "unknown", since a client can send any
// path.
const Method& FindMethod(std::string_view path);

// "JobService/CreateJob", ...: every method of permafrost.v1 and of the health service.
std::vector<std::string> RequestMethods();
// The methods that stream, in either direction.
std::vector<std::string> StreamMethods();
// The methods that tell a resource as it is and each change of it.
std::vector<std::string> WatchMethods();

}  // namespace permafrost::api
