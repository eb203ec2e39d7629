// Derives short names of enum values from the contract: LOSS_L1 is "l1", ARTIFACT_BEST_WEIGHTS is "best-weights". The
// server's own tables use the same names.
// Threads: everything here is pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace permafrost {

// Returns the short name of `value`: "unspecified" for the zero value, and the number itself for an unknown value.
std::string EnumShortName(const google::protobuf::EnumDescriptor& type, int value);
// Returns the value whose short name (with - or _) or full name is `name`. Returns nullopt if there is no such value,
// or if it is the zero value.
std::optional<int> ParseEnum(const google::protobuf::EnumDescriptor& type, std::string_view name);
// Returns every short name except that of the zero value, in the contract's order.
std::vector<std::string> EnumShortNames(const google::protobuf::EnumDescriptor& type);

}  // namespace permafrost
