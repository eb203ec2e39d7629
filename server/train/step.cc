#include "train/step.h"

#include <ATen/core/Tensor.h>

#include <chrono>

namespace permafrost::train {

nn::LossTerms TrainStep::Run(const nn::GraphBatch& batch, PhaseSeconds& seconds) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now();
  const auto lap = [&last](double& total) {
    const Clock::time_point now = Clock::now();
    total += std::chrono::duration<double>(now - last).count();
    last = now;
  };
  optimizer.ZeroGrad();
  const nn::LossTerms terms = nn::ComputeLoss(loss, model.Forward(batch, nn::Mode::kTrain), batch.labels);
  lap(seconds.forward);
  terms.mean.backward();
  lap(seconds.backward);
  optimizer.Step();
  lap(seconds.optimizer);
  return terms;
}

}  // namespace permafrost::train
