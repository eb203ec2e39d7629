#include "program/guards.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace permafrost::program {
namespace {

using c10::FunctionSchema;
using c10::IValue;
using torch::jit::Stack;

// A number that stands for a tensor lies on the CPU, and reading it waits for nothing.
bool IsMinusOne(const IValue& divisor) {
  if (divisor.isInt()) return divisor.toInt() == -1;
  const at::Tensor& tensor = divisor.toTensor();
  return tensor.scalar_type() == at::kLong && *tensor.const_data_ptr<int64_t>() == -1;
}

// The smallest integer divided by -1 is a trap of the processor. Tensors are not read, so that a capture sees no
// difference; a division that rounds down has no trap.
void CheckDivision(const FunctionSchema& schema, const Stack& stack) {
  const IValue* mode = ArgumentNamed(schema, stack, "rounding_mode");
  if (mode == nullptr || !mode->isString() || mode->toStringRef() != "trunc") return;
  const IValue& dividend = stack[0];
  const IValue& divisor = stack[1];
  const auto is_int = [](const IValue& value) {
    return value.isTensor() ? at::isIntegralType(value.toTensor().scalar_type(), false) : value.isInt();
  };
  if (!is_int(dividend) || !is_int(divisor)) return;
  const bool is_number = !divisor.isTensor() || divisor.toTensor().unsafeGetTensorImpl()->is_wrapped_number();
  TORCH_CHECK(is_number && !IsMinusOne(divisor),
              "rounding_mode: \"trunc\" of integers takes a number other than -1 as its divisor; use \"floor\"");
}

// The kernel adds up the repeats without a check, and writes as many rows.
void CheckRepeats(const FunctionSchema& schema, const Stack& stack) {
  const IValue* repeats = ArgumentNamed(schema, stack, "repeats");
  if (repeats == nullptr || !repeats->isTensor()) return;
  const at::Tensor counts = repeats->toTensor().to(at::kCPU, at::kLong).contiguous();
  const auto* count = counts.const_data_ptr<int64_t>();
  int64_t sum = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    TORCH_CHECK(count[i] >= 0, "repeats: ", count[i], " is negative");
    TORCH_CHECK(!__builtin_add_overflow(sum, count[i], &sum), "repeats: their sum is beyond 64 bits");
  }
}

// Limits windows, strides and paddings: on huge ones kernels overflow 32 bits or loop for ever.
void CheckWindows(const FunctionSchema& schema, const Stack& stack) {
  constexpr int64_t kMost = 4096;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!stack[i].isIntList()) continue;
    for (const int64_t number : stack[i].toIntVector())
      TORCH_CHECK(number <= kMost, schema.arguments()[i].name(), ": ", number, " is more than ", kMost);
  }
}

// Paddings of other modes leave memory unset where they are negative.
void CheckPadding(const FunctionSchema& schema, const Stack& stack) {
  const IValue* mode = ArgumentNamed(schema, stack, "mode");
  if (mode == nullptr || mode->toStringRef() == "constant") return;
  for (const int64_t number : ArgumentNamed(schema, stack, "pad")->toIntVector())
    TORCH_CHECK(number >= 0, "pad: ", number, " is negative, which only the mode \"constant\" takes");
}

// A list of pieces takes memory, though they have no elements.
void CheckPieces(const FunctionSchema& schema, const Stack& stack) {
  const auto check = [](int64_t pieces) {
    constexpr int64_t kMost = 100'000;
    TORCH_CHECK(pieces <= kMost, pieces, " pieces are more than the ", kMost, " that a program may make at once");
  };
  for (const char* name : {"chunks", "sections"})
    if (const IValue* pieces = ArgumentNamed(schema, stack, name); pieces != nullptr && pieces->isInt()) {
      check(pieces->toInt());
    }
  // A tensor of one number is a count, too.
  if (const IValue* pieces = ArgumentNamed(schema, stack, "tensor_indices_or_sections"); pieces != nullptr) {
    if (pieces->toTensor().dim() == 0) check(pieces->toTensor().item<int64_t>());
  }
  const IValue* dim = ArgumentNamed(schema, stack, "dim");
  const at::Tensor& self = stack[0].toTensor();
  if (dim == nullptr || self.dim() == 0) return;
  const int64_t rows = self.size(dim->toInt());
  if (schema.name() == "aten::unbind") check(rows);
  const IValue* piece = ArgumentNamed(schema, stack, "split_size");
  if (piece != nullptr && piece->isInt() && piece->toInt() > 0) check(rows / piece->toInt());
}

// Refuses batch statistics of one value, whose variance is undefined. PyTorch's Python does so before it calls the
// operator.
void CheckStatistics(const FunctionSchema& schema, const Stack& stack) {
  const bool batch = schema.name() == "aten::batch_norm";
  const IValue* flag = ArgumentNamed(schema, stack, batch ? "training" : "use_input_stats");
  const at::Tensor& input = stack[0].toTensor();
  if (flag == nullptr || !flag->toBool() || input.dim() < 2) return;
  int64_t values = batch ? input.size(0) : 1;
  for (int64_t i = 2; i < input.dim(); ++i) values *= input.size(i);
  TORCH_CHECK(values != 1, "Expected more than 1 value per channel when training, got input size ", input.sizes());
}

// Refuses weights and states whose sizes or types contradict the other arguments, because oneDNN's kernels read them
// without a check.
void CheckRecurrent(const FunctionSchema& schema, const Stack& stack) {
  constexpr int64_t kMostSteps = 4096;
  const auto named = [&](const char* name) -> const IValue& { return *ArgumentNamed(schema, stack, name); };
  const at::Tensor& input = stack[0].toTensor();
  const std::vector<at::Tensor> params = named("params").toTensorVector();
  const std::vector<at::Tensor> states =
      named("hx").isTensor() ? std::vector<at::Tensor>{named("hx").toTensor()} : named("hx").toTensorVector();
  const bool is_lstm = schema.name() == "aten::lstm", biases = named("has_biases").toBool();
  const int64_t gates = is_lstm                        ? 4
                        : schema.name() == "aten::gru" ? 3
                                                       : 1,
                directions = named("bidirectional").toBool() ? 2 : 1;
  const int64_t layers = named("num_layers").toInt(), of_one = biases ? 4 : 2;
  TORCH_CHECK((input.dim() == 2 || input.dim() == 3) && layers >= 1 && layers <= kMostSteps &&
                  std::ssize(params) == layers * directions * of_one && std::ssize(states) == (is_lstm ? 2 : 1),
              "recurrent layers: ", params.size(), " weights and ", states.size(), " states for ", layers,
              " layers and an input of ", input.dim(), " dimensions; accepted: 2 or 3 dimensions, up to ", kMostSteps,
              " layers, and no projections");
  const int64_t width = params[1].dim() == 2 ? params[1].size(1) : 0;
  // oneDNN divides by the width, and 0 would end the process.
  TORCH_CHECK(width >= 1, "recurrent layers: weight 1 is ", params[1].toString(), params[1].sizes(),
              ", without columns");
  for (int64_t i = 0; i < std::ssize(params); ++i) {
    const int64_t place = i % of_one, in = i < directions * of_one ? input.size(-1) : directions * width;
    const std::vector<int64_t> sizes =
        place >= 2 ? std::vector<int64_t>{gates * width} : std::vector<int64_t>{gates * width, place == 0 ? in : width};
    const at::Tensor& weight = params[static_cast<size_t>(i)];
    TORCH_CHECK(weight.sizes() == sizes && weight.scalar_type() == input.scalar_type(), "recurrent layers: weight ", i,
                " is ", weight.toString(), weight.sizes(), ", not ", input.toString(), at::IntArrayRef(sizes));
  }
  std::vector<int64_t> sizes = {layers * directions, width};
  const int64_t time = input.dim() == 3 && named("batch_first").toBool() ? 1 : 0;
  if (input.dim() == 3) sizes.insert(sizes.begin() + 1, input.size(1 - time));
  for (const at::Tensor& state : states) {
    TORCH_CHECK(state.sizes() == sizes && state.scalar_type() == input.scalar_type(), "recurrent layers: a state is ",
                state.toString(), state.sizes(), ", not ", input.toString(), at::IntArrayRef(sizes));
  }
  TORCH_CHECK(input.size(time) <= kMostSteps, "recurrent layers: ", input.size(time), " steps are more than the ",
              kMostSteps, " that a sequence may have");
}

constexpr struct {
  const char* names;
  Guard guard;
} kGuards[] = {
    {"div div_ divide", CheckDivision},
    {"repeat_interleave", CheckRepeats},
    {"conv1d conv2d conv3d avg_pool1d avg_pool2d max_pool1d max_pool2d adaptive_avg_pool1d adaptive_max_pool1d",
     CheckWindows},
    {"pad", CheckPadding},
    {"chunk unsafe_chunk tensor_split hsplit vsplit split unsafe_split unbind", CheckPieces},
    {"batch_norm instance_norm", CheckStatistics},
    {"lstm gru rnn_tanh rnn_relu", CheckRecurrent},
};

}  // namespace

const IValue* ArgumentNamed(const FunctionSchema& schema, const Stack& stack, const char* name) {
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == name) return &stack[i];
  return nullptr;
}

Guard FindGuard(const std::string& name) {
  static const auto table = [] {
    absl::flat_hash_map<std::string, Guard> made;
    for (const auto& row : kGuards)
      for (const absl::string_view guarded : absl::StrSplit(row.names, ' '))
        made.emplace(absl::StrCat("aten::", guarded), row.guard);
    return made;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace permafrost::program
