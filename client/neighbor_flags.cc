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
  AddSwitch(command, "--replace", flags.replace, "Draw neighbours with replacement");
  AddSwitch(command, "--weighted", flags.weighted, "Draw neighbours by edge weight");
  AddSwitch(command, "--disjoint", flags.disjoint,
            "Each seed has a subgraph of its own, and shares no node with another");
  AddEnumOption(
      command, "--temporal", flags.temporal, *v1::TemporalSampling_descriptor(),
      "Draw edges before a seed's time alone, any of them or the latest; disjoint (default: timestamps are not "
      "read)");
  command
      .add_option("--seed-time", flags.seed_time,
                  "With --temporal: the time of every seed node, as the dataset's timestamps (default: each node's own "
                  "where the "
                  "dataset has them, else after every edge)")
      ->type_name("T");
  AddEnumOption(
      command, "--sampler", flags.sampler, *v1::SamplerKind_descriptor(),
      "How neighbours are drawn: labor shares draws between the nodes of a hop, and finds fewer nodes (default "
      "neighbor)");
}

}  // namespace permafrost::client
