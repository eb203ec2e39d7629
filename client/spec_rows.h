// Fields of jobs, imports and policies, from the rows behind the server's options (server/spec): how a field is called
// in the contract and on the command line, what its help says and what it calls a value. A new row needs no line here.
// Threads: pure functions, where nothing else is said.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/message_fields.h"
#include "google/protobuf/message.h"

namespace permafrost::client {

struct SpecRow {
  // Leads from the message of the rows to the field. It ends in a message for a flag that only creates it:
  // --link-prediction.
  SpecPath path;
  std::string flag;   // "--model,--architecture", "--strict,!--no-strict"; empty: the field has none
  std::string help;   // with the default
  std::string value;  // what the help calls a value: "N", "l1|mse"; empty for a switch
};

// The rows for v1::JobSpec, in the order of the options.
const std::vector<SpecRow>& JobRows();
// The rows for v1::GraphCachePolicy, for a policy that changes: what is not given stays as it is.
std::vector<SpecRow> PolicyRows();
// The rows for v1::SampleDatasetRequest::Neighbors: the fan-outs, and how neighbours are drawn.
std::vector<SpecRow> DrawRows();
// The rows for v1::SampleDatasetRequest::Walk.
std::vector<SpecRow> WalkRows();
// Returns the rows for v1::ImportOptions, and a row for the older name of `--inverse-edges keep`.
std::vector<SpecRow> ImportRows();

// The names of a row's flag, without those that say the opposite: "--model", "--architecture".
std::vector<std::string> FlagNames(const SpecRow& row);

// The field that `name` means: a flag of `job submit` without its dashes ("lr"); "model.hidden_channels"; or the last
// part of that alone, where it is the only one of its depth or lies less deep than all others of that name. Hyphens
// count as underscores. Errors: InvalidArgument naming what is accepted, or what it may mean.
absl::StatusOr<SpecPath> FindSpecField(std::string_view name);

// The words of help texts about the server's defaults:
// "default 4; on one large graph 2; of node2vec 1", without what says nothing new. `set`, `graph`, `walks`: of a job on
// a set of graphs, on one large graph, and of node2vec, which say no more than their dataset and model.
std::string DefaultText(const std::string& set, const std::string& graph, const std::string& walks);

// A default by its name in the domain's table: "gine".
template <class Names, class E>
std::string NameOf(const Names& names, E value) {
  return std::string(names.Name(value));
}

// A field that a flag sets.
struct SpecSetting {
  SpecPath path;
  std::vector<std::string> values;  // one, or the items of a list; of a switch "true" or "false"

  // Makes the messages above the field, and sets it. A switch given as false clears the field where false means the
  // same as no value.
  void Apply(google::protobuf::Message& message) const;
};

// Flags of the command line that say fields of a message of the contract, one for each row. Threads: one.
class SpecFlags {
 public:
  explicit SpecFlags(const std::vector<SpecRow>& rows);
  // The command line writes into it.
  SpecFlags(const SpecFlags&) = delete;
  SpecFlags& operator=(const SpecFlags&) = delete;

  // Adds an option for each row that has a flag. It refuses what the field cannot hold; ranges are the server's to
  // know. The command line must not outlive the flags.
  void AddTo(CLI::App& command);
  // Returns what was given, in the order of the rows.
  std::vector<SpecSetting> Given() const;
  // "--policy", "--freeze-at": the first name of each flag.
  std::vector<std::string> Names() const;

 private:
  // At most one of the three is given.
  struct Flag {
    SpecRow row;
    std::optional<bool> on;
    std::optional<std::string> text;
    std::vector<std::string> items;
  };
  std::vector<Flag> flags_;
};

}  // namespace permafrost::client
