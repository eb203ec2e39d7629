// The command groups. Each Add function adds subcommands to the command line. The subcommand that the user names sets
// `chosen`. Once the line is parsed and the session exists, `chosen` runs.
// Threads: one. The command line must outlive the run of `chosen`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/session.h"
#include "google/protobuf/descriptor.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {

using Command = std::function<ExitCode(Session&)>;

void AddDatasetCommands(CLI::App& app, Command& chosen);
void AddJobCommands(CLI::App& app, Command& chosen);
void AddCacheCommands(CLI::App& app, Command& chosen);
void AddUploadCommands(CLI::App& app, Command& chosen);
void AddProgramCommands(CLI::App& app, Command& chosen);
void AddServerCommands(CLI::App& app, Command& chosen);
void AddQueueCommand(CLI::App& app, Command& chosen);
// The next two groups need no server.
void AddContextCommands(CLI::App& app, Command& chosen);
void AddCompletionCommands(CLI::App& app, Command& chosen);

// Subcommands of `job`.
void AddJobSubmit(CLI::App& job, Command& chosen);
void AddJobSweep(CLI::App& job, Command& chosen);
void AddJobWatch(CLI::App& job, Command& chosen);
void AddJobExplain(CLI::App& job, Command& chosen);
void AddJobLogs(CLI::App& job, Command& chosen);
void AddJobExport(CLI::App& job, Command& chosen);
void AddJobEvaluate(CLI::App& job, Command& chosen);
void AddJobVerbs(CLI::App& job, Command& chosen);
void AddJobWait(CLI::App& job, Command& chosen);
void AddJobCompare(CLI::App& job, Command& chosen);
void AddJobReport(CLI::App& job, Command& chosen);
// Draws the job's progress, and prints each finished epoch and the result. `id` may have the prefix `jobs/`.
// `reconnect` is how long to wait for a server that goes away.
ExitCode WatchJob(Session& session, const std::string& id, absl::Duration reconnect);

// Subcommands of `server`.
void AddTokenCommands(CLI::App& server, Command& chosen);
void AddServerHealthCommand(CLI::App& server, Command& chosen);
void AddServerBackupCommand(CLI::App& server, Command& chosen);
void AddServerClockCommand(CLI::App& server, Command& chosen);

// Subcommands of `dataset`.
void AddDatasetImport(CLI::App& dataset, Command& chosen);
void AddDatasetVerify(CLI::App& dataset, Command& chosen);
void AddDatasetSample(CLI::App& dataset, Command& chosen);
void AddDatasetPlan(CLI::App& dataset, Command& chosen);

// Subcommands of `cache`.
void AddCacheCensus(CLI::App& cache, Command& chosen);
void AddCachePlan(CLI::App& cache, Command& chosen);
void AddCacheWatch(CLI::App& cache, Command& chosen);

// Accepts only these names. The help text lists the accepted values already, so the check adds nothing to it.
CLI::Validator OneOf(const std::vector<std::string>& names);
// Refuses negative numbers, because CLI11 would read -1 as a large unsigned number.
CLI::Validator NotNegative();

// Adds a flag that sets `value` to true, or to false if it is given as --NAME=false. Without the flag, `value` stays
// empty.
void AddSwitch(CLI::App& command, const std::string& flag, std::optional<bool>& value, const std::string& help);
// Adds a flag that takes the short names of an enum of the API.
void AddEnumOption(CLI::App& command, const std::string& flag, std::optional<std::string>& value,
                   const google::protobuf::EnumDescriptor& type, const std::string& help);
// Returns the value of a flag of AddEnumOption. The flag's check has already refused unknown names.
template <class E>
E EnumOf(const google::protobuf::EnumDescriptor& type, const std::string& name) {
  return static_cast<E>(ParseEnum(type, name).value_or(0));
}

// Adds --reconnect, for the commands that follow a stream.
void AddReconnectOption(CLI::App& command, double& seconds);
inline constexpr double kDefaultReconnectSeconds = 30;
// Adds the flag --on SERVER,SERVER,... Its values are names that ServerGroup::Open takes.
void AddOnOption(CLI::App& command, std::vector<std::string>& servers, const std::string& help);

}  // namespace permafrost::client
