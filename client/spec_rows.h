// Fields of jobs, imports and policies, made from the option tables of server/spec. A row gives the field's path in
// the API, its flag, its help text, and the placeholder for its value in the help. A new option needs no code here.
// Threads: pure functions, unless stated otherwise.
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
  // The path to the field, from the message that the rows describe. For a flag that only creates a message
  // (--link-prediction), the path ends in that message.
  SpecPath path;
  std::string flag;   // "--model,--architecture", "--strict,!--no-strict"; empty if there is no flag
  std::string help;   // including the default
  std::string value;  // the placeholder for a value in the help: "N", "l1|mse"; empty for a switch
};

// Returns the rows for v1::JobSpec, in the order of the options.
const std::vector<SpecRow>& JobRows();
// Returns the rows for v1::GraphCachePolicy as a change of a policy: a field that is not given stays unchanged.
std::vector<SpecRow> PolicyRows();
// Returns the rows for v1::SampleDatasetRequest::Neighbors: the fan-outs, and how neighbours are drawn.
std::vector<SpecRow> DrawRows();
// Returns the rows for v1::SampleDatasetRequest::Walk.
std::vector<SpecRow> WalkRows();
// Returns the rows for v1::ImportOptions, and a row for the older name of `--inverse-edges keep`.
std::vector<SpecRow> ImportRows();

// Returns the names of a row's flag, except negated names: "--model", "--architecture".
std::vector<std::string> FlagNames(const SpecRow& row);

// Finds the field that `name` means. `name` may be a flag of `job submit` without its dashes ("lr"), a path
// ("model.hidden_channels"), or the last part of a path. The last part alone is accepted if exactly one of the fields
// with that name is the least deeply nested. Hyphens count as underscores. Errors: InvalidArgument that says what is
// accepted, or which fields `name` may mean.
absl::StatusOr<SpecPath> FindSpecField(std::string_view name);

// Makes the help text about a default, such as "default 4; on one large graph 2; of node2vec 1". Leaves out a part
// that repeats the previous part. `set` is the default for jobs on a set of graphs, `graph` for jobs on one large
// graph, and `walks` for node2vec jobs. In each case, the job gives only dataset and model.
std::string DefaultText(const std::string& set, const std::string& graph, const std::string& walks);

// Returns a default's name in the table of its enum, such as "gine".
template <class Names, class E>
std::string NameOf(const Names& names, E value) {
  return std::string(names.Name(value));
}

// A field and the value that a flag gives it.
struct SpecSetting {
  SpecPath path;
  std::vector<std::string> values;  // one value, or the items of a list; "true" or "false" for a switch

  // Makes the messages above the field, and sets the field. Clears it instead if the setting is false and the API
  // reads an absent field as false.
  void Apply(google::protobuf::Message& message) const;
};

// The command-line flags for the fields of one message, one flag per row. Threads: one.
class SpecFlags {
 public:
  explicit SpecFlags(const std::vector<SpecRow>& rows);
  // The object cannot be copied, because the command line writes into it.
  SpecFlags(const SpecFlags&) = delete;
  SpecFlags& operator=(const SpecFlags&) = delete;

  // Adds an option for each row that has a flag. The option refuses values that the field cannot hold; the server
  // checks ranges. The flags must outlive the command line.
  void AddTo(CLI::App& command);
  // Returns the settings that were given, in the order of the rows.
  std::vector<SpecSetting> Given() const;
  // Returns the first name of each flag, such as "--policy", "--freeze-at".
  std::vector<std::string> Names() const;

 private:
  // At most one of `on`, `text` and `items` is given.
  struct Flag {
    SpecRow row;
    std::optional<bool> on;
    std::optional<std::string> text;
    std::vector<std::string> items;
  };
  std::vector<Flag> flags_;
};

}  // namespace permafrost::client
