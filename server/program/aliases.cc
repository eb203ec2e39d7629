#include "program/aliases.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

// Operators that may return their arguments. They were found by comparing the storages of results and arguments.
constexpr char kReturnArguments[] =
    "type_as atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid cartesian_prod chain_matmul einsum "
    "unsafe_split unsafe_split_with_sizes unsafe_chunk _unsafe_view lift to_dense";
// Dropouts return their argument if they drop nothing.
constexpr char kDropouts[] = "dropout feature_dropout alpha_dropout feature_alpha_dropout native_dropout";

bool Contains(const absl::flat_hash_set<std::string>& names, const Node& node) {
  const auto parsed = ParseOperator(node.target);
  return parsed && names.contains(parsed->name.substr(parsed->name.find(':') + 2));
}

// Returns true if the node's flag `train` is a computed value. The file then does not tell whether the node drops
// elements.
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

namespace {

// Operators whose result never shares memory with an argument.
constexpr std::string_view kFresh[] = {"aten::abs",
                                       "aten::add",
                                       "aten::addmm",
                                       "aten::amax",
                                       "aten::amin",
                                       "aten::arange",
                                       "aten::batch_norm",
                                       "aten::bitwise_and",
                                       "aten::bitwise_not",
                                       "aten::bitwise_or",
                                       "aten::bmm",
                                       "aten::cat",
                                       "aten::clamp",
                                       "aten::clone",
                                       "aten::cos",
                                       "aten::cumsum",
                                       "aten::div",
                                       "aten::embedding",
                                       "aten::eq",
                                       "aten::exp",
                                       "aten::full",
                                       "aten::full_like",
                                       "aten::gather",
                                       "aten::ge",
                                       "aten::gelu",
                                       "aten::gt",
                                       "aten::index",
                                       "aten::index_add",
                                       "aten::index_put",
                                       "aten::index_select",
                                       "aten::layer_norm",
                                       "aten::le",
                                       "aten::leaky_relu",
                                       "aten::linear",
                                       "aten::log",
                                       "aten::logical_and",
                                       "aten::logical_not",
                                       "aten::logical_or",
                                       "aten::lt",
                                       "aten::masked_fill",
                                       "aten::matmul",
                                       "aten::max",
                                       "aten::mean",
                                       "aten::min",
                                       "aten::mm",
                                       "aten::mul",
                                       "aten::ne",
                                       "aten::neg",
                                       "aten::new_full",
                                       "aten::new_ones",
                                       "aten::new_zeros",
                                       "aten::ones",
                                       "aten::ones_like",
                                       "aten::pow",
                                       "aten::relu",
                                       "aten::repeat",
                                       "aten::rsqrt",
                                       "aten::scatter_add",
                                       "aten::scatter_reduce",
                                       "aten::sigmoid",
                                       "aten::silu",
                                       "aten::sin",
                                       "aten::softmax",
                                       "aten::sqrt",
                                       "aten::square",
                                       "aten::stack",
                                       "aten::sub",
                                       "aten::sum",
                                       "aten::tanh",
                                       "aten::where",
                                       "aten::zeros",
                                       "aten::zeros_like"};

bool ReturnsItsOwn(const Node& node) {
  const auto op = ParseOperator(node.target);
  return op && (IsOwnOperator(node.target) || std::ranges::find(kFresh, op->name) != std::end(kFresh));
}

// Adds the inputs of `node` to which its region writes.
void AddWrittenByRegion(const Node& node, std::vector<ValueIndex>& written) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&node.inputs[i].value);
    if (graph == nullptr) continue;
    const SharedMemory inner(**graph);
    for (size_t k = 0; k < (*graph)->inputs.size() && i + 1 + k < node.inputs.size(); ++k) {
      const auto* ref = std::get_if<Ref>(&node.inputs[i + 1 + k].value);
      if (ref != nullptr && inner.IsWritten((*graph)->inputs[k])) written.push_back(ref->value);
    }
  }
}

// Adds the running statistics to which a norm writes in training.
void AddStatistics(const Node& node, std::vector<ValueIndex>& written) {
  const auto op = ParseOperator(node.target);
  if (!op || (op->name != "aten::batch_norm" && op->name != "aten::instance_norm")) return;
  std::vector<ValueIndex> statistics;
  for (const NamedArgument& input : node.inputs) {
    const auto* flag = std::get_if<bool>(&input.value);
    if ((input.name == "training" || input.name == "use_input_stats") && flag != nullptr && !*flag) return;
    const auto* ref = std::get_if<Ref>(&input.value);
    if ((input.name == "running_mean" || input.name == "running_var") && ref != nullptr)
      statistics.push_back(ref->value);
  }
  written.insert(written.end(), statistics.begin(), statistics.end());
}

}  // namespace

SharedMemory::SharedMemory(const Graph& graph) : roots_(graph.values.size()), writers_(graph.values.size()) {
  for (size_t i = 0; i < roots_.size(); ++i) roots_[i] = static_cast<ValueIndex>(i);
  const auto is_tensor = [&](ValueIndex v) { return v != kNoValue && graph.values[v].kind == ValueKind::kTensor; };
  std::vector<ValueIndex> written;
  for (const Node& node : graph.nodes) {
    AddWrittenByRegion(node, written);
    std::vector<ValueIndex> inputs = InputsOf(node), shared;
    if (WritesInPlace(node) && !inputs.empty()) {
      inputs.erase(inputs.begin() + 1, inputs.end());  // the operator writes to its first argument and returns it
      written.push_back(inputs[0]);
    }
    AddStatistics(node, written);
    if (ReturnsItsOwn(node)) continue;
    std::ranges::copy_if(inputs, std::back_inserter(shared), is_tensor);
    for (const Output& output : node.outputs)
      std::ranges::copy_if(output.values, std::back_inserter(shared), is_tensor);
    Join(shared);
  }
  for (ValueIndex& root : roots_) root = Find(root);
  for (const ValueIndex value : written) ++writers_[roots_[value]];
}

ValueIndex SharedMemory::Find(ValueIndex value) {
  while (roots_[value] != value) value = roots_[value] = roots_[roots_[value]];
  return value;
}

void SharedMemory::Join(const std::vector<ValueIndex>& values) {
  for (const ValueIndex value : values) roots_[Find(value)] = Find(values[0]);
}

}  // namespace permafrost::program
