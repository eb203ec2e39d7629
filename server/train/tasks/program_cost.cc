#include "train/tasks/program_cost.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "device/cpu/tape.h"

namespace permafrost::train {
namespace {

using at::Tensor;

// A forward pass that is only counted reads no more than this. A program of many large products would keep whoever
// asks waiting.
constexpr double kMostRead = 1 << 30;

// A training step has about this many operators for each one of the forward pass; recording keeps about this many bytes
// for each.
constexpr int64_t kOperatorsOfStep = 4, kBytesOfOperator = 600;

// Counts of a forward pass: its operators, the bytes that they read in all, and the bytes of the tensors read, each
// tensor counted once.
struct Read {
  int64_t operators = 0;
  double read = 0, made = 0;
};

// Counts what `run` reads. Tensors of `beside` are not counted as made. Throws ReadsTooMuch beyond kMostRead.
Read Listen(const nn::TensorSet& beside, const std::function<void()>& run) {
  Read counted;
  std::set<const c10::StorageImpl*> seen;
  for (const nn::NamedTensor& t : beside.All()) seen.insert(t.value.storage().unsafeGetStorageImpl());
  // Weak references: an address is not reused while it counts, but its bytes are freed.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held;
  const auto add = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto bytes = static_cast<double>(tensor.storage().nbytes());
    counted.read += bytes;
    if (!seen.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
    held.push_back(tensor.storage().getWeakStorageImpl());
    counted.made += bytes;
  };
  device::Tape::Listen(
      [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
        ++counted.operators;
        const size_t arguments = op.schema().arguments().size();
        for (const c10::IValue& value : std::span(stack).last(arguments)) {
          if (value.isTensor()) add(value.toTensor());
          if (!value.isTensorList()) continue;
          for (const c10::IValue& tensor : value.toListRef()) add(tensor.toTensor());
        }
        if (counted.read > kMostRead) throw ReadsTooMuch();
        return false;
      },
      run);
  return counted;
}

double Times(int64_t all, int64_t rows) { return static_cast<double>(all) / static_cast<double>(rows); }

}  // namespace

StepCost ForwardCost::Step(const BatchShape& largest) const {
  StepCost cost{.model = {.parameters = parameters, .activations = 0},
                .executable_bytes = kOperatorsOfStep * kBytesOfOperator * operators};
  if (reads_too_much) {
    cost.operator_values = std::numeric_limits<double>::infinity();
  } else if (operators > 0) {
    const double larger = std::max({Times(largest.nodes, kSmallBatch.nodes), Times(largest.edges, kSmallBatch.edges),
                                    Times(largest.graphs, kSmallBatch.graphs)});
    const double values = (once + growing * larger) / sizeof(float);
    cost.model.activations = 2 * values;
    cost.operator_values = values / static_cast<double>(operators);
  }
  return cost;
}

void BoundReads(const nn::TensorSet& tensors, const std::function<void()>& run) { Listen(tensors, run); }

ForwardCost MeasureForward(const nn::TensorSet& tensors, absl::FunctionRef<at::Tensor(const BatchShape&)> forward) {
  ForwardCost cost{.parameters = static_cast<double>(tensors.num_parameter_values())};
  try {
    const Read one = Listen(tensors, [&] { cost.columns = forward(kSmallBatch).size(1); });
    const Read two = Listen(tensors, [&] { forward(kTwiceThat); });
    cost.growing = std::max(two.made - one.made, 0.0);
    cost.once = one.made - cost.growing;
    cost.operators = two.operators;
  } catch (const ReadsTooMuch&) {
    cost.reads_too_much = true;
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) {
    return cost;
  }
  return cost;
}

}  // namespace permafrost::train
