// Results for programs: protobuf's JSON mapping, one object a line.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace permafrost::client {

// lowerCamelCase names; fields at their default are written too, so that a reader finds every plain field. No newline.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace permafrost::client
