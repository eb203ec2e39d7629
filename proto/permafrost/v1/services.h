// Lists the services of the contract, for code that treats all methods alike.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace permafrost {

// Returns every service of proto/permafrost/v1.
std::vector<const google::protobuf::ServiceDescriptor*> ContractServices();
// Returns every method of the services that ContractServices returns.
std::vector<const google::protobuf::MethodDescriptor*> ContractMethods();
// Returns the method's path on the wire: "/permafrost.v1.JobService/CreateJob".
std::string PathOf(const google::protobuf::MethodDescriptor& method);

}  // namespace permafrost
