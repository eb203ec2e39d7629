#include "client/commands.h"

namespace permafrost::client {

CLI::Validator OneOf(const std::vector<std::string>& names) { return CLI::IsMember(names).description(""); }

CLI::Validator NotNegative() {
  return CLI::Validator(
      [](std::string& value) {
        return !value.empty() && value[0] == '-' ? value + " is negative; accepted: 0 or more" : std::string();
      },
      "");
}

void AddReconnectOption(CLI::App& command, double& seconds) {
  command.add_option("--reconnect", seconds, "How long a server that goes away is waited for")
      ->check(CLI::Range(0.0, 1e9).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
}

}  // namespace permafrost::client
