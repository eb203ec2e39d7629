// The command groups. Each adds its subcommands to the command line; the one that the user names sets `chosen`, which
// runs once the line is parsed and the session stands.
// Threads: one. The command line outlives the run of `chosen`.
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
// These two need no server.
void AddContextCommands(CLI::App& app, Command& chosen);
void AddCompletionCommands(CLI::App& app, Command& chosen);

// Parts of `job`.
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
// Draws the job's progress, prints each finished epoch and the result. `id` is with or without `jobs/`.
// `reconnect`: how long a server that goes away is waited for.
ExitCode WatchJob(Session& session, const std::string& id, absl::Duration reconnect);

// Parts of `server`.
void AddTokenCommands(CLI::App& server, Command& chosen);
void AddServerHealthCommand(CLI::App& server, Command& chosen);
void AddServerBackupCommand(CLI::App& server, Command& chosen);
void AddServerClockCommand(CLI::App& server, Command& chosen);

// Parts of `dataset`.
void AddDatasetImport(CLI::App& dataset, Command& chosen);
void AddDatasetVerify(CLI::App& dataset, Command& chosen);
void AddDatasetSample(CLI::App& dataset, Command& chosen);
void AddDatasetPlan(CLI::App& dataset, Command& chosen);

// Parts of `cache`.
void AddCacheCensus(CLI::App& cache, Command& chosen);
void AddCachePlan(CLI::App& cache, Command& chosen);
void AddCacheWatch(CLI::App& cache, Command& chosen);

// Checks whose accepted values the help text says already, so that CLI11 does not repeat them.
CLI::Validator OneOf(const std::vector<std::string>& names);
// CLI11 would read -1 as a large unsigned number.
CLI::Validator NotNegative();

// A flag that is true, or false where it is given as --NAME=false; empty: it is not given.
void AddSwitch(CLI::App& command, const std::string& flag, std::optional<bool>& value, const std::string& help);
// A flag that takes the short names of an enum of the contract.
void AddEnumOption(CLI::App& command, const std::string& flag, std::optional<std::string>& value,
                   const google::protobuf::EnumDescriptor& type, const std::string& help);
// The value of such a flag, whose check has let only known names through.
template <class E>
E EnumOf(const google::protobuf::EnumDescriptor& type, const std::string& name) {
  return static_cast<E>(ParseEnum(type, name).value_or(0));
}

// --reconnect, for the commands that follow a stream.
void AddReconnectOption(CLI::App& command, double& seconds);
inline constexpr double kDefaultReconnectSeconds = 30;
// --on SERVER,..., the names that ServerGroup::Open takes.
void AddOnOption(CLI::App& command, std::vector<std::string>& servers, const std::string& help);

}  // namespace permafrost::client
