// Parses the options of a daemon from given flags and environment variables.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/options.h"

namespace permafrost {

using Variables = std::map<std::string, std::string>;

inline ParsedOptions Parse(const std::vector<std::string>& args, const Variables& variables = {}) {
  std::vector<const char*> argv = {"permafrostd"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  return ParseOptions(static_cast<int>(argv.size()), argv.data(),
                      [&variables](const std::string& name) -> std::optional<std::string> {
                        const auto it = variables.find(name);
                        return it == variables.end() ? std::nullopt : std::optional(it->second);
                      });
}

inline Options Parsed(const std::vector<std::string>& args, const Variables& variables = {}) {
  ParsedOptions parsed = Parse(args, variables);
  EXPECT_TRUE(parsed.options.has_value()) << parsed.text;
  return parsed.options.value_or(Options{});
}

}  // namespace permafrost
