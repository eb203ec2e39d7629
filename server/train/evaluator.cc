#include "train/evaluator.h"

#include <ATen/ATen.h>

#include "base/status.h"
#include "data/prefetcher.h"
#include "data/sampler.h"

namespace permafrost::train {

absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, const data::Batcher& batcher, std::span<const uint32_t> split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going) {
  const data::ShapeSampler sampler(split, {.batch_size = options.batch_size, .shuffle = false});
  const std::vector<uint32_t> order = sampler.EpochOrder(0);
  data::Prefetcher batches(sampler.batches_per_epoch(), /*depth=*/2, [&](int64_t index, data::PaddedBatch& out) {
    const auto graphs = sampler.Batch(order, index);
    return batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), out);
  });
  Evaluation result;
  engine.eval_losses().Reset();
  engine.eval_errors().Reset();
  while (true) {
    PF_ASSIGN_OR_RETURN(data::PaddedBatch * host, batches.Next());
    if (host == nullptr) break;
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    PF_ASSIGN_OR_RETURN(const at::Tensor prediction, engine.Evaluate(*host, options.step));
    engine.Tell();
    if (options.keep_predictions) {
      const at::Tensor real = prediction.narrow(0, 0, host->real.graphs).to(at::kCPU).contiguous();
      const float* values = real.const_data_ptr<float>();
      result.predictions.insert(result.predictions.end(), values, values + real.numel());
      result.graphs.insert(result.graphs.end(), host->graph_ids.begin(), host->graph_ids.end());
    }
  }
  result.loss = engine.eval_losses().Mean();
  result.mae = engine.eval_errors().Mean();
  return result;
}

}  // namespace permafrost::train
