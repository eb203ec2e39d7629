#include "program/code.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nn/kernels/edge_region.h"

namespace permafrost::program {
namespace {

using c10::FunctionSchema;
using c10::IValue;
using torch::jit::Stack;

// Returns the argument named `name`; null if the operator has no such argument.
const IValue* ArgumentNamed(const FunctionSchema& schema, const Stack& stack, const char* name) {
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == name) return &stack[i];
  return nullptr;
}

// Returns true if the divisor is -1. A tensor that stands for a number lies on the CPU, so reading it does not wait
// for a device.
bool IsMinusOne(const IValue& divisor) {
  if (divisor.isInt()) return divisor.toInt() == -1;
  const at::Tensor& tensor = divisor.toTensor();
  return tensor.scalar_type() == at::kLong && *tensor.const_data_ptr<int64_t>() == -1;
}

// Refuses truncating integer division by -1 or by a tensor, since dividing the smallest integer by -1 traps the
// processor. A divisor tensor is refused whatever its values, so that the check needs no values during a capture.
// Division that rounds down does not trap.
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

// Refuses negative repeats, and repeats with a sum beyond 64 bits. The kernel computes the sum without a check, and
// writes a row for each repeat.
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

// Limits windows, strides and paddings, since with huge values kernels overflow 32 bits or loop for ever.
void CheckWindows(const FunctionSchema& schema, const Stack& stack) {
  constexpr int64_t kMost = 4096;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!stack[i].isIntList()) continue;
    for (const int64_t number : stack[i].toIntVector())
      TORCH_CHECK(number <= kMost, schema.arguments()[i].name(), ": ", number, " is more than ", kMost);
  }
}

// Refuses negative padding, except in mode "constant". With negative padding, the kernels of the other modes leave
// memory uninitialised.
void CheckPadding(const FunctionSchema& schema, const Stack& stack) {
  const IValue* mode = ArgumentNamed(schema, stack, "mode");
  if (mode == nullptr || mode->toStringRef() == "constant") return;
  for (const int64_t number : ArgumentNamed(schema, stack, "pad")->toIntVector())
    TORCH_CHECK(number >= 0, "pad: ", number, " is negative, which only the mode \"constant\" takes");
}

// Limits the number of pieces, since each piece takes memory even if it has no elements.
void CheckPieces(const FunctionSchema& schema, const Stack& stack) {
  const auto check = [](int64_t pieces) {
    constexpr int64_t kMost = 100'000;
    TORCH_CHECK(pieces <= kMost, pieces, " pieces are more than the ", kMost, " that a program may make at once");
  };
  for (const char* name : {"chunks", "sections"})
    if (const IValue* pieces = ArgumentNamed(schema, stack, name); pieces != nullptr && pieces->isInt()) {
      check(pieces->toInt());
    }
  // A tensor without dimensions holds the number of sections.
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

// Refuses batch statistics over a single value, since its variance is undefined. PyTorch's Python code refuses them
// before it calls the operator.
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

// The functions below estimate the bytes of operators' outputs.

double Product(at::IntArrayRef sizes) {
  double product = 1;
  for (const int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(size, 0));
  return product;
}
double RealOf(const IValue& value) {
  return value.isInt() ? static_cast<double>(value.toInt()) : value.isDouble() ? value.toDouble() : 0;
}
double Named(const FunctionSchema& schema, const Stack& stack, const char* name, double otherwise = 0) {
  const IValue* value = ArgumentNamed(schema, stack, name);
  return value == nullptr || value->isNone() ? otherwise : RealOf(*value);
}
bool IsTensor(const IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// Returns the number of bytes of one output element. If the argument `dtype` is given, it determines this number.
// Otherwise the largest element of any tensor argument does.
double ElementBytes(const FunctionSchema& schema, const Stack& stack) {
  if (const IValue* type = ArgumentNamed(schema, stack, "dtype"); type != nullptr && type->isInt()) {
    return static_cast<double>(c10::elementSize(static_cast<at::ScalarType>(type->toInt())));
  }
  int64_t bytes = 0;
  for (const IValue& value : stack)
    if (IsTensor(value)) bytes = std::max<int64_t>(bytes, value.toTensor().element_size());
  return bytes == 0 ? sizeof(int64_t) : static_cast<double>(bytes);
}

double OfSize(const FunctionSchema& schema, const Stack& stack) {
  const IValue* size = ArgumentNamed(schema, stack, "size");
  if (size == nullptr || !size->isIntList()) return 0;
  return Product(size->toIntVector()) * ElementBytes(schema, stack);
}
double OfRepeats(const FunctionSchema& schema, const Stack& stack) {
  return Product(stack[0].toTensor().sizes()) * Product(stack[1].toIntVector()) * ElementBytes(schema, stack);
}
double OfRepeatedRows(const FunctionSchema& schema, const Stack& stack) {
  const IValue& repeats = *ArgumentNamed(schema, stack, "repeats");
  const double bytes = ElementBytes(schema, stack);
  const auto of_self = [&](double rows) {
    return &repeats == &stack[0] ? 1 : Product(stack[0].toTensor().sizes()) / std::max(rows, 1.0);
  };
  if (repeats.isInt()) return of_self(1) * RealOf(repeats) * bytes;
  const at::Tensor& counts = repeats.toTensor();
  if (counts.numel() == 0) return 0;
  // If there is a single count, it holds for every row.
  return of_self(static_cast<double>(counts.numel())) * counts.sum().to(at::kDouble).item<double>() * bytes;
}
double OfClasses(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& labels = stack[0].toTensor();
  double classes = Named(schema, stack, "num_classes");
  if (classes < 0 && labels.numel() > 0) classes = labels.max().to(at::kDouble).item<double>() + 1;
  return Product(labels.sizes()) * classes * sizeof(int64_t);
}
double OfBins(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& values = stack[0].toTensor();
  const double largest = values.numel() == 0 ? 0 : values.max().to(at::kDouble).item<double>() + 1;
  return std::max(largest, Named(schema, stack, "minlength")) * sizeof(int64_t);
}
double OfRange(const FunctionSchema& schema, const Stack& stack) {
  const double step = Named(schema, stack, "step", 1);
  const double steps = (Named(schema, stack, "end") - Named(schema, stack, "start")) / (step == 0 ? 1 : step);
  return std::max(steps, 0.0) * ElementBytes(schema, stack);
}
double OfSteps(const FunctionSchema& schema, const Stack& stack) {
  return Named(schema, stack, "steps") * ElementBytes(schema, stack);
}
double OfN(const FunctionSchema& schema, const Stack& stack) {
  return Named(schema, stack, "n") *
         Named(schema, stack, "m", schema.name() == "aten::eye" ? Named(schema, stack, "n") : 1) *
         ElementBytes(schema, stack);
}
double OfTriangle(const FunctionSchema& schema, const Stack& stack) {
  return 2 * Named(schema, stack, "row") * Named(schema, stack, "col") * sizeof(int64_t);
}
double OfDiagonal(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& self = stack[0].toTensor();
  if (self.dim() == 0 || (schema.name() == "aten::diag" && self.dim() != 1)) return 0;
  const double offset = std::abs(Named(schema, stack, "offset") + Named(schema, stack, "diagonal"));
  const double rows = Product(self.sizes()), side = static_cast<double>(self.size(-1)) + offset;
  // The diagonal may lie in any dimension. The estimate assumes the last dimension, as is usual.
  return rows / std::max<double>(1, static_cast<double>(self.size(-1))) * side * side * ElementBytes(schema, stack);
}
double OfPadding(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& self = stack[0].toTensor();
  const std::vector<int64_t> pad = ArgumentNamed(schema, stack, "pad")->toIntVector();
  double product = 1;
  for (int64_t i = 0; i < self.dim(); ++i) {
    auto size = static_cast<double>(self.size(self.dim() - 1 - i));
    for (const size_t side : {2 * i, 2 * i + 1})
      if (side < pad.size()) size += static_cast<double>(pad[side]);
    product *= std::max(size, 0.0);
  }
  return product * ElementBytes(schema, stack);
}
double OfSamples(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& self = stack[0].toTensor();
  return static_cast<double>(self.dim() == 2 ? self.size(0) : 1) * Named(schema, stack, "num_samples") *
         sizeof(int64_t);
}
double OfStaticRows(const FunctionSchema& schema, const Stack& stack) {
  return static_cast<double>(stack[0].toTensor().dim()) * Named(schema, stack, "size") * sizeof(int64_t);
}
double OfLists(const FunctionSchema& schema, const Stack& stack) {
  double sum = 0, product = 1, bytes = 1;
  const auto tensors = stack[0].toTensorVector();
  for (const at::Tensor& tensor : tensors) {
    sum += Product(tensor.sizes());
    product *= Product(tensor.sizes());
    bytes = std::max(bytes, static_cast<double>(tensor.element_size()));
  }
  const bool each_with_each = schema.name() == "aten::cartesian_prod";
  return (each_with_each ? product * static_cast<double>(tensors.size()) : sum) * bytes;
}
double OfOuter(const FunctionSchema& schema, const Stack& stack) {
  double product = 1;
  for (const IValue& value : stack)
    if (IsTensor(value)) product *= Product(value.toTensor().sizes());
  return product * ElementBytes(schema, stack);
}
// Returns the number of elements that the tensors of `stack` from index `first` on have after broadcasting. The last
// `without` dimensions are left out. The result is meaningless if libtorch would refuse the sizes.
double Broadcast(const Stack& stack, size_t first, int64_t without) {
  double product = 1;
  for (int64_t i = without, more = 1; more != 0; ++i) {
    int64_t size = 1;
    more = 0;
    for (size_t k = first; k < stack.size(); ++k) {
      if (!IsTensor(stack[k])) continue;
      const at::Tensor& tensor = stack[k].toTensor();
      if (i >= tensor.dim()) continue;
      more = 1;
      if (const int64_t of = tensor.size(tensor.dim() - 1 - i); of != 1) size = size == 1 ? of : std::max(size, of);
    }
    product *= static_cast<double>(size);
  }
  return product;
}
double OfElements(const FunctionSchema& schema, const Stack& stack) {
  return Broadcast(stack, 0, 0) * ElementBytes(schema, stack);
}
// Returns the bytes of a matrix product of [..., n, k] with [..., k, m]. For operators such as linear, the second
// matrix is [..., m, k].
double OfProduct(const FunctionSchema& schema, const Stack& stack) {
  const std::string& second = schema.arguments()[1].name();
  const size_t first = second == "mat1" || second == "batch1" ? 1 : 0;  // the addend comes first
  const at::Tensor &a = stack[first].toTensor(), &b = stack[first + 1].toTensor();
  if (a.dim() < 1 || b.dim() < 2) return 0;
  const bool rows = schema.name() == "aten::linear" || schema.name() == "permafrost::row_linear" ||
                    schema.name() == "aten::cdist" || schema.name() == "aten::scaled_dot_product_attention";
  const double columns = static_cast<double>(b.size(rows ? -2 : -1));
  if (b.dim() == 2 || a.dim() < 2) {
    return Product(a.sizes()) / std::max<double>(1, static_cast<double>(a.size(-1))) * columns *
           Product(b.sizes().slice(0, b.dim() - 2)) * ElementBytes(schema, stack);
  }
  return Broadcast({a, b}, 0, 2) * static_cast<double>(a.size(-2)) * columns * ElementBytes(schema, stack);
}
// Returns the bytes of a result that has one row of the table for each element of the index.
double OfRows(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& table = stack[0].toTensor();
  const IValue* named = ArgumentNamed(schema, stack, schema.name().ends_with("embedding") ? "indices" : "index");
  const IValue* dim = ArgumentNamed(schema, stack, "dim");
  if (named == nullptr || !IsTensor(*named) || table.dim() == 0) return 0;
  const double rows = static_cast<double>(table.size(dim != nullptr && dim->isInt() ? dim->toInt() : 0));
  return Product(named->toTensor().sizes()) * Product(table.sizes()) / std::max(rows, 1.0) *
         static_cast<double>(table.element_size());
}
// Returns the bytes of all gates or of all outputs, whichever is larger. CheckRecurrent has checked the weights.
double OfRecurrent(const FunctionSchema& schema, const Stack& stack) {
  const at::Tensor& input = stack[0].toTensor();
  const std::vector<at::Tensor> params = ArgumentNamed(schema, stack, "params")->toTensorVector();
  const int64_t directions = ArgumentNamed(schema, stack, "bidirectional")->toBool() ? 2 : 1;
  const auto width = static_cast<double>(std::max(params[0].size(0), directions * params[1].size(1)));
  const double rows = Product(input.sizes().slice(0, static_cast<size_t>(input.dim()) - 1));
  return rows * width * static_cast<double>(input.element_size());
}
double OfIndices(const FunctionSchema& /*schema*/, const Stack& stack) {
  const at::Tensor& table = stack[0].toTensor();
  Stack indices;
  double rows = 1;
  int64_t dimension = 0;
  for (const std::optional<at::Tensor>& index : stack[1].toOptionalTensorVector()) {
    const bool is_mask = index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    if (is_mask) return 0;  // a mask selects at most the whole table
    if (index && dimension < table.dim()) {
      indices.emplace_back(*index);
      rows *= static_cast<double>(table.size(dimension));
    }
    ++dimension;
  }
  return Broadcast(indices, 0, 0) * Product(table.sizes()) / std::max(rows, 1.0) *
         static_cast<double>(table.element_size());
}

double OfSegments(const FunctionSchema& schema, const Stack& stack) {
  return Named(schema, stack, "rows") * sizeof(int32_t);
}
// Returns the bytes of the region's largest output.
double OfRegion(const FunctionSchema& schema, const Stack& stack) {
  const auto region = nn::DecodeRegion(ArgumentNamed(schema, stack, "code")->toIntVector(),
                                       ArgumentNamed(schema, stack, "numbers")->toDoubleVector());
  const auto inputs = stack[0].toTensorVector();
  if (!region.ok() || inputs.empty()) return 0;
  // A row region has no offsets. Its number of targets is the number of rows of FirstTargetInput.
  double targets = 0, edges = 0, most = 0;
  if (const IValue* offsets = ArgumentNamed(schema, stack, "offsets"); offsets != nullptr) {
    targets = static_cast<double>(offsets->toTensor().numel());
    edges = static_cast<double>(ArgumentNamed(schema, stack, "places")->toTensor().numel());
  } else {
    const auto place = static_cast<size_t>(nn::FirstTargetInput(*region));
    if (place < inputs.size() && inputs[place].dim() > 0) targets = static_cast<double>(inputs[place].size(0));
  }
  for (const int32_t output : region->outputs) {
    const nn::RegionStep& step = region->steps[static_cast<size_t>(output)];
    most = std::max(most, (step.level == nn::RegionLevel::kEdge ? edges : targets) * step.width);
  }
  return most * static_cast<double>(inputs[0].element_size());
}

constexpr struct {
  const char* names;  // names without "::" are ATen's
  Estimate estimate;
} kEstimates[] = {
    {"zeros ones full empty rand randn randint normal new_zeros new_ones new_full new_empty", OfSize},
    {"repeat tile", OfRepeats},
    {"repeat_interleave", OfRepeatedRows},
    {"one_hot", OfClasses},
    {"bincount", OfBins},
    {"arange", OfRange},
    {"linspace logspace", OfSteps},
    {"eye randperm", OfN},
    {"tril_indices triu_indices", OfTriangle},
    {"diag diag_embed", OfDiagonal},
    {"pad constant_pad_nd", OfPadding},
    {"multinomial", OfSamples},
    {"nonzero_static", OfStaticRows},
    {"cat concat concatenate stack hstack vstack dstack column_stack cartesian_prod", OfLists},
    {"outer ger kron", OfOuter},
    {"matmul mm bmm linear cdist addmm addbmm baddbmm linalg_matmul scaled_dot_product_attention "
     "permafrost::row_linear",
     OfProduct},
    {"permafrost::segments_of", OfSegments},
    {"permafrost::edge_region permafrost::row_region", OfRegion},
    {"lstm gru rnn_tanh rnn_relu", OfRecurrent},
    {"embedding index_select permafrost::row_embedding", OfRows},
    {"index", OfIndices},
    {"add sub rsub mul div divide multiply subtract true_divide floor_divide fmod remainder pow float_power maximum "
     "minimum fmax fmin lerp addcmul addcdiv eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and "
     "bitwise_or bitwise_xor __and__ __or__ __xor__ where masked_fill xlogy atan2 hypot heaviside mse_loss l1_loss "
     "smooth_l1_loss huber_loss clamp clamp_min clamp_max clip cosine_similarity pairwise_distance",
     OfElements},
};

}  // namespace

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

Estimate FindEstimate(const std::string& name) {
  static const auto table = [] {
    absl::flat_hash_map<std::string, Estimate> made;
    for (const auto& row : kEstimates)
      for (const absl::string_view estimated : absl::StrSplit(row.names, ' '))
        made.emplace(absl::StrContains(estimated, "::") ? estimated : absl::StrCat("aten::", estimated), row.estimate);
    return made;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace permafrost::program
