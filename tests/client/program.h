// Runs the real `permafrost` as a user does: into pipes, or on a pseudo-terminal.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace permafrost::client {

struct ProgramResult {
  // The exit code, or 128 + N after death by signal N.
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs the program to its end. PERMAFROST_SERVER is taken from `environment`, and is otherwise unset.
ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment = {});

// The program on a pseudo-terminal of 100 columns. Colours are off and the locale is ASCII unless `environment`
// changes them.
class TerminalProgram {
 public:
  explicit TerminalProgram(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment = {});
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;
  // Kills the program if it still runs.
  ~TerminalProgram();

  // Reads until the whole output so far contains `text`. Returns false if the program ends first, or after 30 s.
  bool ReadUntil(const std::string& text);
  // Sends `keys` to the terminal as if a user pressed them.
  void Type(const std::string& keys) const;
  // Reads the rest of the output and returns the exit code.
  int Wait();
  const std::string& output() const { return output_; }

 private:
  bool ReadSome();

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string output_;
};

}  // namespace permafrost::client
