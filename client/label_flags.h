// Labels of jobs on the command line.
// Threads: one; the functions are pure.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "google/protobuf/map.h"

namespace permafrost::client {

using WireLabels = google::protobuf::Map<std::string, std::string>;

// --label KEY=VALUE, several times.
void AddLabelOption(CLI::App& command, std::vector<std::string>& labels, const std::string& help);
// Adds what the option was given. Errors: InvalidArgument for what is not KEY=VALUE and for a key that stands twice;
// what a key or value may be is the server's to say.
absl::Status ReadLabels(const std::vector<std::string>& texts, WireLabels& labels);
// "stage=test, team=gnn", by key.
std::string LabelsText(const WireLabels& labels);

}  // namespace permafrost::client
