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

void AddSwitch(CLI::App& command, const std::string& flag, std::optional<bool>& value, const std::string& help) {
  // The flag is bound to a function, because CLI11 sets a value that is bound directly to false if the flag is not
  // given.
  command
      .add_flag_function(
          flag, [&value](int64_t given) { value = given > 0; }, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void AddEnumOption(CLI::App& command, const std::string& flag, std::optional<std::string>& value,
                   const google::protobuf::EnumDescriptor& type, const std::string& help) {
  const auto names = EnumShortNames(type);
  command.add_option(flag, value, help)->check(OneOf(names))->type_name(CLI::detail::join(names, "|"));
}

void AddReconnectOption(CLI::App& command, double& seconds) {
  command.add_option("--reconnect", seconds, "How long a server that goes away is waited for")
      ->check(CLI::Range(0.0, 1e9).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
}

void AddOnOption(CLI::App& command, std::vector<std::string>& servers, const std::string& help) {
  command.add_option("--on", servers, help)->delimiter(',')->type_name("SERVER,...");
}

}  // namespace permafrost::client
