#include "program/node_writer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/operators.h"

namespace permafrost::program {
namespace {

// Operators whose only effect is to compute their result.
constexpr std::string_view kRemovable[] = {"aten::abs",
                                           "aten::add",
                                           "aten::alias",
                                           "aten::cat",
                                           "aten::clone",
                                           "aten::contiguous",
                                           "aten::div",
                                           "aten::elu",
                                           "aten::embedding",
                                           "aten::exp",
                                           "aten::expand",
                                           "aten::flatten",
                                           "aten::gelu",
                                           "aten::index",
                                           "aten::index_select",
                                           "aten::leaky_relu",
                                           "aten::linear",
                                           "aten::mul",
                                           "aten::neg",
                                           "aten::relu",
                                           "aten::repeat",
                                           "aten::reshape",
                                           "aten::select",
                                           "aten::selu",
                                           "aten::sigmoid",
                                           "aten::silu",
                                           "aten::slice",
                                           "aten::softplus",
                                           "aten::split_with_sizes",
                                           "aten::square",
                                           "aten::squeeze",
                                           "aten::stack",
                                           "aten::sub",
                                           "aten::tanh",
                                           "aten::unsqueeze",
                                           "aten::view",
                                           "aten::_unsafe_view"};

using Flags = std::vector<bool>;  // by value

void Use(ValueIndex value, Flags& used) {
  if (value != kNoValue) used[value] = true;
}

Flags UsedOutside(const Program& program) {
  Flags used(program.graph.values.size());
  for (const std::vector<ValueIndex>* outputs : {&program.graph.outputs, &program.outputs})
    for (const ValueIndex output : *outputs) Use(output, used);
  for (const BufferUpdate& update : program.updates) Use(update.value, used);
  return used;
}

bool AnyOutput(const Node& node, const Flags& flags) {
  return std::ranges::any_of(node.outputs, [&](const Output& output) {
    return std::ranges::any_of(output.values, [&](ValueIndex value) { return value != kNoValue && flags[value]; });
  });
}

}  // namespace

void RemoveOrphans(const Program& original, Program& rewritten) {
  // If the original program never used a value, the rewriting did not orphan it, so its node stays.
  Flags had_use = UsedOutside(original);
  for (const Node& node : original.graph.nodes)
    for (const ValueIndex value : ValuesOf(node)) Use(value, had_use);
  had_use.resize(rewritten.graph.values.size(), true);

  Flags used = UsedOutside(rewritten);
  std::vector<Node> kept;
  for (Node& node : rewritten.graph.nodes | std::views::reverse) {
    const bool removable =
        !node.outputs.empty() && std::ranges::find(kRemovable, OperatorOf(node)) != std::end(kRemovable);
    if (removable && !AnyOutput(node, used) && AnyOutput(node, had_use)) continue;
    for (const ValueIndex value : ValuesOf(node)) Use(value, used);
    kept.push_back(std::move(node));
  }
  std::ranges::reverse(kept);
  rewritten.graph.nodes = std::move(kept);
}

Program WithNodes(const Program& program, std::vector<Node> nodes) {
  Program rewritten = program;
  rewritten.graph.nodes = std::move(nodes);
  RemoveOrphans(program, rewritten);
  return rewritten;
}

}  // namespace permafrost::program
