// The methods of the server, read from the contract: which role may call a method, and under which name its calls are
// counted.
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
  // The name under which calls are counted: "JobService/CreateJob".
  std::string label;
  // True: the method streams in at least one direction.
  bool streams = false;
  // The least role that may call the method. nullopt: anyone may call it, without a token.
  std::optional<access::Role> least_role;
  // True: the method changes something, and its calls are audited.
  bool changes = false;
};

// Reads the method's option `permafrost.v1.access`. A method without a role in this option needs an admin.
Method MethodFromContract(const google::protobuf::MethodDescriptor& method);

// Returns the method of a path on the wire, "/permafrost.v1.JobService/CreateJob". Reflection and unknown paths need
// the role viewer. Their calls are counted as "unknown", because a client can send any path.
const Method& FindMethod(std::string_view path);

// Returns every method of permafrost.v1 and of the health service: "JobService/CreateJob", ...
std::vector<std::string> RequestMethods();
// Returns the methods that stream in at least one direction.
std::vector<std::string> StreamMethods();
// Returns the methods that send a resource's current state and then each change of it.
std::vector<std::string> WatchMethods();

}  // namespace permafrost::api
