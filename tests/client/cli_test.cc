// Tests the program's refusal of values that a flag does not accept. It refuses them before it knows a server.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

TEST(BadValuesTest, AreToldWithWhatWouldBeAccepted) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
    const char* command;
  } kCases[] = {
      {{"job", "submit", "--epochs", "ten"}, "--epochs: 'ten'; accepted: a whole number", "job submit"},
      {{"job", "submit", "--seed-time", "abc"}, "--seed-time: 'abc'; accepted: a whole number", "job submit"},
      {{"job", "submit", "--checkpoint-every", "x"}, "--checkpoint-every: 'x'; accepted: a whole number", "job submit"},
      {{"job", "evaluate", "j", "--checkpoint", "abc"},
       "--checkpoint: 'abc'; accepted: a whole number",
       "job evaluate"},
      {{"dataset", "sample", "d", "--walk", "x"}, "--walk: 'x'; accepted: a whole number", "dataset sample"},
      {{"job", "submit", "--lr", "x"}, "--lr: 'x'; accepted: a number", "job submit"},
      {{"job", "submit", "--dropout", "x"}, "--dropout: 'x'; accepted: a number", "job submit"},
      {{"dataset", "import", "d", "d", "--train-fraction", "x"},
       "--train-fraction: 'x'; accepted: a number",
       "dataset import"},
      {{"job", "submit", "--class-weights", "1,x"},
       "--class-weights: 'x'; accepted: a number; a list has ',' between its items",
       "job submit"},
      {{"dataset", "sample", "d", "--nodes", "1,x"},
       "--nodes: '1,x'; accepted: whole numbers with commas between them",
       "dataset sample"},
      {{"job", "submit", "--fan-out", "5,x"},
       "--fan-out: 'x'; accepted: a whole number, or all; a list has ',' between its items",
       "job submit"},
      {{"job", "submit", "--virtual-node=abc"}, "--virtual-node: 'abc'; accepted: true, false", "job submit"},
      {{"job", "submit", "--strict=abc"}, "--strict: 'abc'; accepted: true, false", "job submit"},
      {{"job", "submit", "--no-strict=abc"}, "--no-strict: 'abc'; accepted: true, false", "job submit"},
      // The program's global flags are checked wherever they stand.
      {{"--tls=abc", "job", "list"}, "--tls: 'abc'; accepted: true, false", "job list"},
      {{"job", "list", "--tls=abc"}, "--tls: 'abc'; accepted: true, false", "job list"},
  };
  for (const auto& c : kCases) {
    const ProgramResult result = RunProgram(c.arguments);
    EXPECT_EQ(result.exit_code, 2) << c.says;
    EXPECT_EQ(result.err, absl::StrCat("permafrost: ", c.says, " (see permafrost ", c.command, " --help)\n"));
    EXPECT_THAT(result.out, testing::IsEmpty()) << c.says;
  }
}

TEST(BadValuesTest, FlagsTakeTheirValues) {
  // Each value is accepted, so the missing --dataset is the first fault.
  for (const char* flag : {"--strict=false", "--no-strict", "--no-strict=true", "--virtual-node=true"}) {
    EXPECT_EQ(RunProgram({"job", "submit", flag}).err,
              "permafrost: --dataset is missing: name one, or give it as `dataset` in --file\n")
        << flag;
  }
}

}  // namespace
}  // namespace permafrost::client
