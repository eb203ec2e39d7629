// Fields of a job's description, from the rows behind the server's options (server/spec): how a field is called in the
// contract and on the command line, what its help says and what it calls a value. A new row needs no line here.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/spec_field.h"

namespace permafrost::client {

struct SpecRow {
  // From the message whose fields these are. Ends in a message for the flag that says that it is there:
  // --link-prediction.
  SpecPath path;
  std::string flag;   // "--model,--architecture", "--strict,!--no-strict"; empty: the field has none
  std::string help;   // with the default
  std::string value;  // what the help calls a value: "N", "l1|mse"; empty for a switch
};

// Of v1::JobSpec, in the order of the options.
const std::vector<SpecRow>& JobRows();
// Of v1::GraphCachePolicy, for a policy that changes: what is not given stays as it is.
std::vector<SpecRow> PolicyRows();
// Of v1::SampleDatasetRequest::Neighbors: the fan-outs, and how neighbours are drawn.
std::vector<SpecRow> DrawRows();

// The names of a row's flag, without those that say the opposite: "--model", "--architecture".
std::vector<std::string> FlagNames(const SpecRow& row);

// The field that `name` means: a flag of `job submit` without its dashes ("lr"); "model.hidden_channels"; or the last
// part of that alone, where it is the only one of its depth or lies less deep than all others of that name. Hyphens
// count as underscores. Errors: InvalidArgument naming what is accepted, or what it may mean.
absl::StatusOr<SpecPath> FindSpecField(std::string_view name);

}  // namespace permafrost::client
