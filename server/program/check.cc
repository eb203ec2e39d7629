#include "program/check.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "program/node_access.h"
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

// Returns whether an LSTM projects its outputs: it then has one extra weight for each layer and direction.
bool HasProjections(const Node& node) {
  const auto flag = [&](std::string_view name) { return FlagOf(node, name, false) == true; };
  const std::optional<int64_t> layers = NumberOf(node, "num_layers", 0);
  if (!layers || *layers < 1) return false;
  const int64_t directions = flag("bidirectional") ? 2 : 1, weights = (flag("has_biases") ? 4 : 2) + 1;
  return std::ssize(ListOf(node, "params")) == directions * weights * *layers;
}

}  // namespace

absl::Status CheckOperators(const Program& program) {
  constexpr size_t kNamed = 8;
  std::string first, projections;
  std::set<std::string> others;
  ForEachNode(program.graph, [&](const Node& node) {
    if (projections.empty() && OperatorOf(node) == "aten::lstm" && HasProjections(node)) projections = Describe(node);
    if (FindOperator(node.target)) return;
    if (first.empty()) first = Describe(node);
    others.insert(Shorten(node.target));
  });
  if (first.empty() && !projections.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(projections, ": an LSTM has no projections here; use proj_size=0"));
  }
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
