// Short names of the contract's enum values, derived from the contract itself: LOSS_L1 is "l1",
// ARTIFACT_BEST_WEIGHTS is "best-weights". They are the names of the server's own tables, too.
// Threads: everything here is pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace permafrost {

// "unspecified" for the zero value, the number for one that this version does not know.
std::string EnumShortName(const google::protobuf::EnumDescriptor& type, int value);
// Takes the short name (with - or _) and the full one; the zero value has no name to give.
std::optional<int> ParseEnum(const google::protobuf::EnumDescriptor& type, std::string_view name);
// Every short name but the zero value's, in the contract's order.
std::vector<std::string> EnumShortNames(const google::protobuf::EnumDescriptor& type);

}  // namespace permafrost
