// Helps rewritings of a program: writes the nodes that replace other nodes, and removes nodes that are no longer
// used.
// Threads: one thread at a time per NodeWriter; the rest are pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "program/program.h"

namespace permafrost::program {

class NodeWriter {
 public:
  // `values` are the graph's values. New values are appended to them. Borrowed.
  explicit NodeWriter(std::vector<Graph::Value>& values) : values_(values) {}

  std::vector<Node> nodes;

  ValueIndex NewValue(const Node& node, TensorType type) {
    values_.push_back({absl::StrCat(node.name, "_made_", values_.size()), ValueKind::kTensor, std::move(type)});
    return static_cast<ValueIndex>(values_.size()) - 1;
  }
  // Adds a call of aten's operator `op`, as part of the replacement of `node`. Returns the call's result.
  ValueIndex Add(const Node& node, std::string_view op, std::vector<NamedArgument> inputs, ValueIndex result) {
    return AddTarget(node, absl::StrCat("torch.ops.aten.", AbslView(op)), std::move(inputs), result);
  }
  ValueIndex Add(const Node& node, std::string_view op, std::vector<NamedArgument> inputs, TensorType type) {
    return Add(node, op, std::move(inputs), NewValue(node, std::move(type)));
  }
  ValueIndex AddTarget(const Node& node, std::string target, std::vector<NamedArgument> inputs, ValueIndex result) {
    nodes.push_back({.name = values_[result].name,
                     .target = std::move(target),
                     .inputs = std::move(inputs),
                     .outputs = {{.values = {result}, .is_list = false}},
                     .source = node.source});
    return result;
  }
  // Adds a call whose output is a list, as part of the replacement of `node`. The list has one result for each of
  // `types`.
  std::vector<ValueIndex> AddList(const Node& node, std::string target, std::vector<NamedArgument> inputs,
                                  const std::vector<TensorType>& types) {
    std::vector<ValueIndex> results;
    results.reserve(types.size());
    for (const TensorType& type : types) results.push_back(NewValue(node, type));
    nodes.push_back({.name = absl::StrCat(node.name, "_list_", nodes.size()),
                     .target = std::move(target),
                     .inputs = std::move(inputs),
                     .outputs = {{.values = results, .is_list = true}},
                     .source = node.source});
    return results;
  }
  // Makes the last added node produce `result`, the result of `node`. Removes the value that the last added node
  // produced before, which must be the newest value.
  void Finish(const Node& node, ValueIndex result) {
    nodes.back().outputs[0].values[0] = result;
    nodes.back().name = node.name;
    values_.pop_back();
  }

 private:
  std::vector<Graph::Value>& values_;
};

// Removes nodes of `rewritten` whose outputs are unused. Keeps a node if its outputs were already unused in
// `original`. Removes only operators of a fixed list, whose only effect is to compute their result.
void RemoveOrphans(const Program& original, Program& rewritten);
// Returns the program with `nodes` in place of its own, after RemoveOrphans. The program must already have the values
// of `nodes`.
Program WithNodes(const Program& program, std::vector<Node> nodes);

}  // namespace permafrost::program
