// The command groups. Each adds its subcommands to the command line; the one that the user names sets `chosen`, which
// runs once the line is parsed and the session stands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/session.h"

namespace permafrost::client {

using Command = std::function<ExitCode(Session&)>;

void AddDatasetCommands(CLI::App& app, Command& chosen);
void AddJobCommands(CLI::App& app, Command& chosen);
void AddServerCommands(CLI::App& app, Command& chosen);

// Parts of `job`, each in its own file.
void AddJobSubmit(CLI::App& job, Command& chosen);
void AddJobWatch(CLI::App& job, Command& chosen);
void AddJobLogs(CLI::App& job, Command& chosen);
void AddJobExport(CLI::App& job, Command& chosen);

// Checks whose accepted values the help text says already, so that CLI11 does not repeat them.
CLI::Validator OneOf(const std::vector<std::string>& names);
// CLI11 would read -1 as a large unsigned number.
CLI::Validator NotNegative();

// --reconnect, for the commands that follow a stream.
void AddReconnectOption(CLI::App& command, double& seconds);
inline constexpr double kDefaultReconnectSeconds = 30;

}  // namespace permafrost::client
