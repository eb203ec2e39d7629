// Flags of the command line that say fields of a message of the contract, one for each row (client/spec_rows.h).
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/spec_rows.h"
#include "google/protobuf/message.h"

namespace permafrost::client {

// A field that a flag sets.
struct SpecSetting {
  SpecPath path;
  std::vector<std::string> values;  // one, or the items of a list; of a switch "true" or "false"

  // Makes the messages above the field, and sets it. A switch that is given as false asks for nothing: it takes away
  // what is there.
  void Apply(google::protobuf::Message& message) const;
};

// The values of the flags.
class SpecFlags {
 public:
  explicit SpecFlags(const std::vector<SpecRow>& rows);
  // The command line writes into it.
  SpecFlags(const SpecFlags&) = delete;
  SpecFlags& operator=(const SpecFlags&) = delete;

  // Adds an option for each row that has a flag. It refuses what the field cannot hold; ranges are the server's to
  // know. The command line must not outlive the flags.
  void AddTo(CLI::App& command);
  // Those that were given, in the order of the rows.
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
