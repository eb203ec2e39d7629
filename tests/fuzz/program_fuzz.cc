// Reads arbitrary bytes as a program's archive, as the JSON of one of its forms, or as a table of its tensors.
#include <algorithm>
#include <cctype>
#include <string>

#include "fuzz_input.h"
#include "program/decode.h"
#include "program/load.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

void CheckRefusal(const absl::Status& status) {
  const std::string message(status.message());
  const bool raw = std::any_of(message.begin(), message.end(), [](unsigned char c) { return std::iscntrl(c) != 0; });
  Check(!message.empty() && !raw, "not one line: " + message);
  Check(status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kDataLoss ||
            status.code() == absl::StatusCode::kResourceExhausted,
        "another error: " + status.ToString());
}

// Checks that every index is in range, and that every value is defined before it is used.
void CheckGraph(const Graph& graph) {
  std::vector<bool> defined(graph.values.size());
  const auto define = [&](ValueIndex value) {
    if (value == kNoValue) return;
    Check(value >= 0 && static_cast<size_t>(value) < defined.size() && !defined[value],
          "defined twice or out of range");
    defined[value] = true;
  };
  const auto use = [&](ValueIndex value) {
    if (value == kNoValue) return;
    Check(value >= 0 && static_cast<size_t>(value) < defined.size() && defined[value], "used before it is defined");
  };
  for (const ValueIndex input : graph.inputs) define(input);
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) {
      if (const auto* ref = std::get_if<Ref>(&input.value)) use(ref->value);
      if (const auto* refs = std::get_if<Refs>(&input.value))
        for (const ValueIndex value : refs->values) use(value);
      if (const auto* region = std::get_if<std::shared_ptr<const Graph>>(&input.value)) CheckGraph(**region);
    }
    for (const Output& output : node.outputs)
      for (const ValueIndex value : output.values) define(value);
  }
  for (const ValueIndex output : graph.outputs) use(output);
}

}  // namespace
}  // namespace permafrost::program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::program;
  permafrost::FuzzInput input(data, size);
  const int kind = input.TakeByte() % 3;
  Limits limits;
  limits.tensor_bytes = limits.json_bytes = 1 << 20;
  if (kind == 0) {
    const auto loaded = LoadProgramFromBytes(input.rest(), limits);
    if (!loaded.ok()) CheckRefusal(loaded.status());
  } else if (kind == 1) {
    const auto program = DecodeProgram("model", input.rest(), limits);
    if (!program.ok()) {
      CheckRefusal(program.status());
      return 0;
    }
    CheckGraph(program->graph);
    if (const absl::Status status = CheckOperators(*program); !status.ok()) CheckRefusal(status);
  } else {
    const auto table = DecodeTensorTable("table", input.rest(), limits);
    if (!table.ok()) CheckRefusal(table.status());
  }
  return 0;
}
