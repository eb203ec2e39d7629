#include "client/neighbor_flags.h"

#include <map>

namespace permafrost::client {

CLI::Option* AddFanOutOption(CLI::App& command, const std::string& flag, std::vector<int64_t>& fan_outs,
                             const std::string& help) {
  return command.add_option(flag, fan_outs, help)
      ->transform(CLI::Transformer(std::map<std::string, int64_t>{{"all", -1}}).description(""))
      ->delimiter(',')
      ->type_name("N|all,...");
}

void AddDrawOptions(CLI::App& command, DrawFlags& flags) {
  command.add_flag("--replace", flags.replace, "Draw neighbours with replacement");
  command.add_flag("--weighted", flags.weighted, "Draw neighbours by edge weight");
}

}  // namespace permafrost::client
