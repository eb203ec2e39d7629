#include "program/check.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

template <class Visit>
void ForEachNode(const Graph& graph, const Visit& visit) {
  for (const Node& node : graph.nodes) {
    visit(node);
    for (const NamedArgument& input : node.inputs)
      if (const auto* region = std::get_if<std::shared_ptr<const Graph>>(&input.value)) ForEachNode(**region, visit);
  }
}

}  // namespace

absl::Status CheckOperators(const Program& program) {
  constexpr size_t kNamed = 8;
  std::string first;
  std::set<std::string> others;
  ForEachNode(program.graph, [&](const Node& node) {
    if (FindOperator(node.target)) return;
    if (first.empty()) first = Describe(node);
    others.insert(Shorten(node.target));
  });
  if (first.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(first, ": no program may use this operator");
  if (others.size() > 1) {
    absl::StrAppend(&message, "; ", others.size(), " operators of the program are refused:");
    size_t named = 0;
    for (const std::string& other : others) {
      if (named++ == kNamed) break;
      absl::StrAppend(&message, " ", other);
    }
  }
  return absl::InvalidArgumentError(message);
}

std::vector<const Node*> RandomNodes(const Program& program) {
  std::vector<const Node*> nodes;
  ForEachNode(program.graph, [&](const Node& node) {
    if (Draws(node)) nodes.push_back(&node);
  });
  return nodes;
}

}  // namespace permafrost::program
