// Tells which role a method needs: the one table, for every method that the server answers.
// Threads: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "access/role.h"

namespace permafrost::access {

struct MethodRule {
  // As on the wire: "/permafrost.v1.JobService/CreateJob".
  std::string_view path;
  // The least role that may call it; nullopt: anyone may, without a token.
  std::optional<Role> least;
  // True: it changes something, and its calls are audited.
  bool changes = false;
};

// Every method of permafrost.v1, of the health service and of reflection.
std::span<const MethodRule> MethodRules();
// The rule of a path. One that is not in the table needs a viewer, and is then answered UNIMPLEMENTED.
MethodRule RuleOf(std::string_view path);

}  // namespace permafrost::access
