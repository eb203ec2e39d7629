// The real `permafrost`, run as a user runs it: into pipes, or on a pseudo-terminal.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace permafrost::client {

struct ProgramResult {
  // 128 + N for death by signal N.
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs to the end. PERMAFROST_SERVER is what `environment` says, or not set.
ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment = {});

// On a pseudo-terminal of 100 columns, with colours off and an ASCII locale unless `environment` says otherwise.
class TerminalProgram {
 public:
  explicit TerminalProgram(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment = {});
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;
  // Kills what still runs.
  ~TerminalProgram();

  // Reads until all that was written so far contains `text`; false when the program ended, or took half a minute,
  // without.
  bool ReadUntil(const std::string& text);
  // As if these keys were pressed.
  void Type(const std::string& keys) const;
  // Reads the rest and returns the exit code.
  int Wait();
  const std::string& output() const { return output_; }

 private:
  bool ReadSome();

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string output_;
};

}  // namespace permafrost::client
