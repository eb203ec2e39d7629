#include "train/evaluator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/status.h"
#include "data/prefetcher.h"
#include "data/sampler.h"
#include "nn/loss.h"
#include "train/device_batch.h"
#include "train/error_sums.h"

namespace permafrost::train {

absl::StatusOr<Evaluation> Evaluate(nn::Gine& model, const data::Batcher& batcher, std::span<const uint32_t> split,
                                    const EvaluationOptions& options, c10::Device device,
                                    const std::function<bool()>& keep_going) {
  const at::NoGradGuard no_grad;
  const data::ShapeSampler sampler(split, {.batch_size = options.batch_size, .shuffle = false});
  const std::vector<uint32_t> order = sampler.EpochOrder(0);
  data::Prefetcher batches(sampler.batches_per_epoch(), /*depth=*/2, [&](int64_t index, data::PaddedBatch& out) {
    const auto graphs = sampler.Batch(order, index);
    return batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), out);
  });
  Evaluation result;
  ErrorSums losses(device), errors(device);
  while (true) {
    PF_ASSIGN_OR_RETURN(const data::PaddedBatch* host, batches.Next());
    if (host == nullptr) break;
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    const nn::GraphBatch batch = ToDevice(*host, batcher.summary(), device);
    const at::Tensor prediction = model.Forward(batch, nn::Mode::kEval);
    losses.Add(nn::ComputeLoss(options.loss, prediction, batch.labels));
    errors.Add(nn::ComputeLoss(nn::Loss::kL1, prediction, batch.labels));
    if (options.keep_predictions) {
      const at::Tensor real = prediction.narrow(0, 0, host->real.graphs).to(at::kCPU).contiguous();
      const float* values = real.const_data_ptr<float>();
      result.predictions.insert(result.predictions.end(), values, values + real.numel());
      result.graphs.insert(result.graphs.end(), host->graph_ids.begin(), host->graph_ids.end());
    }
  }
  result.loss = losses.Mean();
  result.mae = errors.Mean();
  return result;
}

}  // namespace permafrost::train
