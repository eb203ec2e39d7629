// A Program holds one form (train or eval) of a module that torch.export wrote. This file also makes the texts by
// which messages name a program's nodes. Torch-free.
// Threads: plain values.
// Invariant: in a program that DecodeProgram returned, every value is defined once and before its uses, and every
// index is in range.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/enum_names.h"

namespace permafrost::program {

enum class DType { kUint8, kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kFloat64, kBool, kBfloat16 };
inline constexpr EnumNames<DType, 10> kDTypeNames{{{{DType::kUint8, "uint8"},
                                                    {DType::kInt8, "int8"},
                                                    {DType::kInt16, "int16"},
                                                    {DType::kInt32, "int32"},
                                                    {DType::kInt64, "int64"},
                                                    {DType::kFloat16, "float16"},
                                                    {DType::kFloat32, "float32"},
                                                    {DType::kFloat64, "float64"},
                                                    {DType::kBool, "bool"},
                                                    {DType::kBfloat16, "bfloat16"}}}};

// Returns true for float32 and float64, the only types that rewritings handle.
inline bool IsReal(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }
enum class MemoryFormat { kContiguous, kChannelsLast, kChannelsLast3d, kPreserve };

// A size: a known number, or an expression of symbols such as "s77" or "Mul(2, s77)".
struct Size {
  int64_t number = 0;
  std::string expression;  // empty if the number is known
  bool operator==(const Size&) const = default;
};

struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<Size> sizes;
  bool requires_grad = false;
};

enum class ValueKind { kTensor, kInt, kFloat, kBool };
inline constexpr EnumNames<ValueKind, 4> kValueKindNames{{{{ValueKind::kTensor, "tensor"},
                                                           {ValueKind::kInt, "int"},
                                                           {ValueKind::kFloat, "float"},
                                                           {ValueKind::kBool, "bool"}}}};

// An index in Graph::values.
using ValueIndex = int32_t;
inline constexpr ValueIndex kNoValue = -1;

struct Graph;
struct None {};
struct Ref {
  ValueIndex value = kNoValue;
};
// A list of tensors. kNoValue stands for a tensor that is left out.
struct Refs {
  std::vector<ValueIndex> values;
};
struct Ints {
  std::vector<std::variant<int64_t, Ref>> values;
};
struct StridedLayout {};
struct Device {};  // the device on which the program runs, not the one that the file names

using Argument =
    std::variant<None, Ref, Refs, Ints, bool, int64_t, double, std::string, std::vector<double>, std::vector<bool>,
                 DType, MemoryFormat, StridedLayout, Device, std::shared_ptr<const Graph>>;
struct NamedArgument {
  std::string name;  // the name in the operator's schema; empty for operators without one
  Argument value;
};

struct Output {
  std::vector<ValueIndex> values;  // one value, or several if the output is a list
  bool is_list = false;
};

struct Node {
  std::string name;
  std::string target;  // such as "torch.ops.aten.add.Tensor" or "_operator.mul"
  std::vector<NamedArgument> inputs;
  std::vector<Output> outputs;
  std::string source;  // the module's source line, for messages; empty if the file has none
};

struct Graph {
  struct Value {
    std::string name;
    ValueKind kind = ValueKind::kTensor;
    // The type that the file declares for a tensor of the outermost graph. It is not verified before a run. Empty for
    // every other value, and for a tensor whose declared type is missing or not accepted.
    std::optional<TensorType> type;
  };
  std::vector<Value> values;
  std::vector<ValueIndex> inputs;
  std::vector<Node> nodes;
  std::vector<ValueIndex> outputs;  // kNoValue: None
};

// An argument that the caller passes to the program in each step.
struct Input {
  std::string name;
  ValueIndex value = kNoValue;
  ValueKind kind = ValueKind::kTensor;
  TensorType type;  // set if the input is a tensor
  Size size;        // set if the input is an int
};

enum class StateKind { kParameter, kBuffer, kConstant };
inline constexpr EnumNames<StateKind, 3> kStateKindNames{
    {{{StateKind::kParameter, "parameter"}, {StateKind::kBuffer, "buffer"}, {StateKind::kConstant, "constant"}}}};
// A tensor that the program holds between steps. Its sizes are known.
struct State {
  StateKind kind = StateKind::kParameter;
  std::string name;  // the module's name for it, such as "convs.0.nn.0.weight"
  ValueIndex value = kNoValue;
  TensorType type;
  bool persistent = true;  // true if the module's state_dict has it
};

// A graph output that becomes the new value of a buffer. Exports without in-place operators update buffers in this
// way.
struct BufferUpdate {
  ValueIndex value = kNoValue;
  size_t state = 0;
};

struct Range {
  std::string symbol;
  int64_t min = INT64_MIN, max = INT64_MAX;
};

// The symbols that stand for the numbers of nodes, edges and graphs of a batch. They are found by the names of
// inputs. A symbol is empty if no input has that size.
struct BatchSymbols {
  std::string nodes, edges, graphs;
};

struct Program {
  std::string form;  // "train", "eval" or "model"
  std::string torch_version;
  int64_t schema_major = 0, schema_minor = 0;
  Graph graph;
  std::vector<Input> inputs;
  std::vector<State> state;
  std::vector<BufferUpdate> updates;
  std::vector<ValueIndex> outputs;       // the values that the module returns, flattened; kNoValue: None
  std::vector<TensorType> output_types;  // the types of the tensors among `outputs`
  std::vector<Range> ranges;
  BatchSymbols symbols;
};

// Returns one line of text such as "node add_3 (torch.ops.aten.add.Tensor; model.py:12: return x + y)". Long parts
// are cut.
std::string Describe(const Node& node);

// Returns the source line of a node, such as "model.py:12 in forward: h = self.norm(h), in convs.0 (GINEConv)".
// `stack_trace` is the Python stack that torch.export keeps, outermost call first. `nn_module_stack` lists the
// modules around the call. The result is the innermost line outside libraries, or the innermost line if all are in
// libraries. Returns "" if neither argument has the information.
std::string SourceLine(std::string_view stack_trace, std::string_view nn_module_stack);

// Joins several lines of SourceLine into one text: the first line, and the places of up to eight others, such as
// "model.py:12 in forward: h = self.norm(h), in convs.0 (GINEConv); with model.py:13, model.py:15".
std::string JoinedLines(std::span<const std::string> lines);

}  // namespace permafrost::program
