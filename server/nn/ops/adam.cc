#include "nn/ops/adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "nn/kernels/adam.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Values that are updated at once, and the blocks from which on several threads share them. At half of these, 35 us of
// work, two threads were as fast as one: `bench/run parallel --filter updates`.
constexpr int64_t kAdamBlock = 4096, kAdamGrain = 32;

struct Block {
  size_t tensor;
  int64_t begin;
};

bool Applies(const OptionalTensor& applies) { return !applies || *applies->const_data_ptr<float>() != 0; }

// Returns the blocks of all parameters, each of whose `others` has its shape.
std::vector<Block> BlocksOf(const char* name, at::TensorList parameters, at::ArrayRef<double> weight_decays,
                            std::initializer_list<at::TensorList> others) {
  TORCH_CHECK(!parameters.empty(), name, ": no parameters");
  TORCH_CHECK(weight_decays.size() == parameters.size(), name, ": ", parameters.size(), " parameters, ",
              weight_decays.size(), " weight decays");
  for (const at::TensorList list : others) {
    TORCH_CHECK(list.size() == parameters.size(), name, ": ", parameters.size(), " parameters, ", list.size(),
                " gradients or moments");
  }
  std::vector<Block> blocks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const at::TensorList list : others) {
      const Tensor& t = list[i];
      TORCH_CHECK(t.sizes() == parameters[i].sizes() && t.is_contiguous() && parameters[i].is_contiguous(), name,
                  ": a gradient or moment of ", t.sizes(), " for a parameter of ", parameters[i].sizes());
    }
    for (int64_t begin = 0; begin < parameters[i].numel(); begin += kAdamBlock) blocks.push_back({i, begin});
  }
  return blocks;
}

// update(parameter, first value, values)
template <class Update>
void ForBlocks(const std::vector<Block>& blocks, at::TensorList parameters, const Update& update) {
  at::parallel_for(0, std::ssize(blocks), kAdamGrain, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const auto [i, begin] = blocks[static_cast<size_t>(b)];
      update(i, begin, std::min(kAdamBlock, parameters[i].numel() - begin));
    }
  });
}

void AdamCpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
             Tensor& step, const Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
             const OptionalTensor& applies) {
  const std::vector<Block> blocks = BlocksOf("adam_", parameters, weight_decays, {gradients, exp_avgs, exp_avg_sqs});
  if (!Applies(applies)) return;
  // Counted once nothing can be wrong any more.
  const float done = ++*step.mutable_data_ptr<float>();
  AdamUpdate update{.learning_rate = *learning_rate.const_data_ptr<double>(), .decoupled = decoupled};
  update.correction1 = 1 - std::pow(update.beta1, static_cast<double>(done));
  update.correction2 = 1 - std::pow(update.beta2, static_cast<double>(done));
  AT_DISPATCH_FLOATING_TYPES(parameters[0].scalar_type(), "adam_", [&] {
    ForBlocks(blocks, parameters, [&](size_t i, int64_t begin, int64_t size) {
      AdamUpdate own = update;
      own.weight_decay = weight_decays[i];
      AdamStep<scalar_t>(own, size, gradients[i].const_data_ptr<scalar_t>() + begin,
                         parameters[i].mutable_data_ptr<scalar_t>() + begin,
                         exp_avgs[i].mutable_data_ptr<scalar_t>() + begin,
                         exp_avg_sqs[i].mutable_data_ptr<scalar_t>() + begin);
    });
  });
}

void SgdCpu(at::TensorList parameters, at::TensorList gradients, at::TensorList momenta, Tensor& step,
            const Tensor& learning_rate, at::ArrayRef<double> weight_decays, double momentum, bool nesterov,
            const OptionalTensor& applies) {
  const std::vector<Block> blocks = BlocksOf("sgd_", parameters, weight_decays, {gradients, momenta});
  if (!Applies(applies)) return;
  ++*step.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES(parameters[0].scalar_type(), "sgd_", [&] {
    const auto rate = static_cast<scalar_t>(*learning_rate.const_data_ptr<double>()),
               kept = static_cast<scalar_t>(momentum);
    ForBlocks(blocks, parameters, [&](size_t i, int64_t begin, int64_t size) {
      const auto decay = static_cast<scalar_t>(weight_decays[i]);
      const scalar_t* const gradient = gradients[i].const_data_ptr<scalar_t>() + begin;
      scalar_t *const value = parameters[i].mutable_data_ptr<scalar_t>() + begin,
                      *const m = momenta[i].mutable_data_ptr<scalar_t>() + begin;
      for (int64_t k = 0; k < size; ++k) {
        const scalar_t g = gradient[k] + decay * value[k];
        m[k] = kept * m[k] + g;
        value[k] -= rate * (nesterov ? g + kept * m[k] : m[k]);
      }
    });
  });
}

constexpr Operator<AdamCpu> kAdam{
    "adam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!) step, Tensor learning_rate, float[] weight_decays, bool decoupled, Tensor? applies) -> ()"};

constexpr Operator<SgdCpu> kSgd{
    "sgd_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] momenta, Tensor(c!) step, Tensor learning_rate, "
    "float[] weight_decays, float momentum, bool nesterov, Tensor? applies) -> ()"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kAdam.Register(library);
  kSgd.Register(library);
}

void AdamStepAll(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                 const std::vector<Tensor>& exp_avgs, const std::vector<Tensor>& exp_avg_sqs, Tensor& step,
                 const Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const Tensor& applies) {
  kAdam(parameters, gradients, exp_avgs, exp_avg_sqs, step, learning_rate, weight_decays, decoupled,
        IfDefined(applies));
}

void SgdStepAll(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                const std::vector<Tensor>& momenta, Tensor& step, const Tensor& learning_rate,
                at::ArrayRef<double> weight_decays, const SgdOptions& options, const Tensor& applies) {
  kSgd(parameters, gradients, momenta, step, learning_rate, weight_decays, options.momentum, options.nesterov,
       IfDefined(applies));
}

}  // namespace permafrost::nn
