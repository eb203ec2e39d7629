#include "program/aliases.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

// Found by comparing the storages of results and arguments.
constexpr char kReturnArguments[] =
    "type_as atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid cartesian_prod chain_matmul einsum "
    "unsafe_split unsafe_split_with_sizes unsafe_chunk _unsafe_view lift to_dense";
// They return their argument where nothing is dropped.
constexpr char kDropouts[] = "dropout feature_dropout alpha_dropout feature_alpha_dropout native_dropout";

bool Contains(const absl::flat_hash_set<std::string>& names, const Node& node) {
  const auto parsed = ParseOperator(node.target);
  return parsed && names.contains(parsed->name.substr(parsed->name.find(':') + 2));
}

// True if a value of the graph decides whether the node drops, so that the file does not say.
bool FlagIsComputed(const Node& node) {
  for (const NamedArgument& input : node.inputs)
    if (input.name == "train" && std::holds_alternative<Ref>(input.value)) return true;
  return false;
}

}  // namespace

void Aliases::Follow(const Node& node, std::vector<ValueIndex> sources) {
  if (sources.empty()) return;
  const auto place = static_cast<int32_t>(sources_.size());
  sources_.push_back(std::move(sources));
  for (const Output& output : node.outputs)
    for (const ValueIndex value : output.values)
      if (value != kNoValue) sources_of_[value] = place;
}

std::set<ValueIndex> Aliases::WrittenInputs() const {
  std::vector<bool> seen(graph_.values.size()), seen_sources(sources_.size());
  std::vector<ValueIndex> open = written_;
  while (!open.empty()) {
    const ValueIndex value = open.back();
    open.pop_back();
    if (value == kNoValue || seen[value]) continue;
    seen[value] = true;
    const int32_t sources = sources_of_[value];
    if (sources == kNone || seen_sources[sources]) continue;
    seen_sources[sources] = true;
    open.insert(open.end(), sources_[sources].begin(), sources_[sources].end());
  }
  std::set<ValueIndex> inputs;
  for (const ValueIndex input : graph_.inputs)
    if (seen[input]) inputs.insert(input);
  return inputs;
}

bool ReturnsArguments(const Node& node) {
  static const absl::flat_hash_set<std::string> always = absl::StrSplit(kReturnArguments, ' ');
  static const absl::flat_hash_set<std::string> dropouts = absl::StrSplit(kDropouts, ' ');
  return Contains(always, node) || (Contains(dropouts, node) && (!Draws(node) || FlagIsComputed(node)));
}

}  // namespace permafrost::program
