#include "train/planning/program_description.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "program/load.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

// The expression of a size, with the letters of a batch in place of the symbols of an export.
std::string SizeText(const program::Size& size, const program::BatchSymbols& symbols) {
  if (size.expression.empty()) return absl::StrCat(size.number);
  const auto is_part = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const auto letter = [&](const std::string& word) -> std::string {
    if (word == symbols.nodes) return "N";
    if (word == symbols.edges) return "E";
    return word == symbols.graphs ? "G" : word;
  };
  std::string text;
  for (size_t at = 0; at < size.expression.size();) {
    size_t end = at;
    while (end < size.expression.size() && is_part(size.expression[end])) ++end;
    text += end > at ? letter(size.expression.substr(at, end - at)) : std::string(1, size.expression[at]);
    at = std::max(end, at + 1);
  }
  return Shorten(text);
}

std::string TypeText(const program::TensorType& type, const program::BatchSymbols& symbols) {
  std::string sizes;
  for (const program::Size& size : type.sizes)
    absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", SizeText(size, symbols));
  return absl::StrCat(AbslView(program::kDTypeNames.Name(type.dtype)), "[", sizes, "]");
}

std::string TypeText(program::ValueKind kind, const program::TensorType& type, const program::BatchSymbols& symbols) {
  if (kind == program::ValueKind::kTensor) return TypeText(type, symbols);
  return std::string(program::kValueKindNames.Name(kind));
}

// Counts the nodes of the graph and its regions, and collects their operators of ATen.
int64_t CountNodes(const program::Graph& graph, std::set<std::string>& operators) {
  int64_t nodes = std::ssize(graph.nodes);
  for (const program::Node& node : graph.nodes) {
    absl::string_view target = node.target;
    if (absl::ConsumePrefix(&target, "torch.ops.") && absl::StartsWith(target, "aten.")) operators.emplace(target);
    for (const program::NamedArgument& input : node.inputs) {
      const auto* region = std::get_if<std::shared_ptr<const program::Graph>>(&input.value);
      if (region != nullptr && *region) nodes += CountNodes(**region, operators);
    }
  }
  return nodes;
}

spec::ProgramForm DescribeForm(const program::Program& program) {
  spec::ProgramForm form{.name = program.form, .inputs = {}, .outputs = {}, .num_nodes = 0, .operators = {}};
  form.inputs.reserve(program.inputs.size());
  for (const program::Input& input : program.inputs) {
    form.inputs.push_back({.name = Shorten(input.name), .type = TypeText(input.kind, input.type, program.symbols)});
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    if (program.outputs[i] == program::kNoValue) continue;
    const program::Graph::Value& value = program.graph.values[program.outputs[i]];
    form.outputs.push_back(
        {.name = Shorten(value.name), .type = TypeText(value.kind, program.output_types[i], program.symbols)});
  }
  std::set<std::string> operators;
  form.num_nodes = CountNodes(program.graph, operators);
  form.operators.assign(operators.begin(), operators.end());
  return form;
}

spec::ProgramTensorKind KindOf(program::StateKind kind) {
  switch (kind) {
    case program::StateKind::kParameter:
      return spec::ProgramTensorKind::kParameter;
    case program::StateKind::kBuffer:
      return spec::ProgramTensorKind::kBuffer;
    case program::StateKind::kConstant:
      break;
  }
  return spec::ProgramTensorKind::kConstant;
}

spec::ProgramDescription Describe(const program::LoadedProgram& loaded) {
  spec::ProgramDescription description;
  description.torch_version = Shorten(loaded.train().program->torch_version);
  std::set<std::pair<program::StateKind, std::string>> told;
  std::set<const c10::TensorImpl*> counted;
  for (const program::Form& form : loaded.forms) {
    description.forms.push_back(DescribeForm(*form.program));
    for (size_t i = 0; i < form.state.size(); ++i) {
      const program::State& state = form.program->state[i];
      const at::Tensor& tensor = form.state[i];
      const bool is_parameter = state.kind == program::StateKind::kParameter;
      if (is_parameter && counted.insert(tensor.unsafeGetTensorImpl()).second) {
        description.num_parameters += tensor.numel();
      }
      if (!told.emplace(state.kind, state.name).second) continue;
      description.tensors.push_back({.name = Shorten(state.name),
                                     .kind = KindOf(state.kind),
                                     .type = TypeText(state.type, {}),
                                     .trained = is_parameter && tensor.requires_grad(),
                                     .persistent = state.persistent});
    }
  }
  std::ranges::stable_sort(description.tensors, {}, &spec::ProgramTensor::kind);
  return description;
}

}  // namespace

absl::StatusOr<spec::ProgramDescription> DescribeProgram(const fs::path& archive, uint64_t limit,
                                                         const std::optional<MemoryLeft>& memory) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(archive, error);
  if (error) return SystemError(error.value(), archive, "look at");
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the archive has ", bytes, " bytes, and this server may use ", limit, " bytes of memory"));
  }
  if (memory && bytes > memory->left) {
    return AsTransient(absl::ResourceExhaustedError(absl::StrCat(
        "the archive has ", bytes, " bytes, and ", memory->left, " bytes of this server's memory are free just now")));
  }
  PF_ASSIGN_OR_RETURN(const program::LoadedProgram loaded, program::LoadProgram(archive));
  return Describe(loaded);
}

}  // namespace permafrost::train
