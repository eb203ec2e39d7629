// Messages as text, by the contract's own description of itself: every field apart, or JSON for programs.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"

namespace permafrost::client {

// "optimizer.learning_rate" and "0.001", in the contract's order: what is no message, of the messages in it that are
// set. A field with presence that is not set is left out; a list is one text, "10,5".
std::vector<std::pair<std::string, std::string>> MessageFields(const google::protobuf::Message& message);

// Protobuf's JSON mapping, one object a line: lowerCamelCase names; fields at their default are written too, so that a
// reader finds every plain field. No newline.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace permafrost::client
