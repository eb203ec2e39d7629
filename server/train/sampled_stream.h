// Sampled blocks of one large graph as batches of a job: padded, and streamed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "data/batching/block_batch.h"
#include "data/batching/block_stream.h"
#include "data/batching/link_batch.h"
#include "data/rows/row_counters.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/epoch_order.h"
#include "train/block_rungs.h"
#include "train/links.h"
#include "train/node_inputs.h"
#include "train/task.h"

namespace permafrost::train {

inline bool HasSparseFeatures(const data::GraphSummary& graph) { return graph.node_feature_nonzeros > 0; }

// A sampled block. Threads: one at a time. Borrows the batcher, the rungs and what it is bound to.
class SampledBatch final : public HostBatch {
 public:
  // features: of all nodes on the device, where the batcher gathers none.
  SampledBatch(const data::BlockBatcher& batcher, const BlockRungs& rungs, at::Tensor features = {})
      : batcher_(&batcher), rungs_(&rungs), features_(std::move(features)) {}
  // Makes this the batch `host`, until it is bound to another. pairs: of a job that predicts links, those of its seeds.
  void Bind(data::BlockBatch& host, const data::LinkBatch* pairs) {
    host_ = &host;
    pairs_ = pairs;
  }

  BatchShape real() const override;
  // The shape of its rung.
  BatchShape least_padded() const override;
  BatchShape dynamic_shape() const override { return dynamic_sizes().shape(); }
  BatchShape padded() const override { return host_->padded.shape(); }
  std::span<const uint32_t> ids() const override;
  std::span<const float> labels() const override;

 private:
  absl::Status Pad(const BatchShape& shape) override;
  absl::Status PadToDynamic() override { return PadToSizes(dynamic_sizes()); }
  absl::Status PadToSizes(const data::BlockSizes& sizes);
  data::BlockSizes dynamic_sizes() const;
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  const data::BlockBatcher* batcher_;
  const BlockRungs* rungs_;
  at::Tensor features_;
  data::BlockBatch* host_ = nullptr;
  const data::LinkBatch* pairs_ = nullptr;
  mutable RowKeys keys_;
};

// Batches of a training epoch or a split, sampled and gathered ahead of the step. Borrows `links`, or nullptr, and
// `times`, which are of nodes. Threads: as BatchStream; the batches are planned on a thread of its own.
class SampledStream final : public BatchStream {
 public:
  SampledStream(data::BlockBatcher& batcher, const BlockRungs& rungs, at::Tensor features, data::EpochOrder epochs,
                int64_t epoch, int64_t first, uint64_t first_stream, const Links* links, const data::SeedTimes& times,
                data::BlockStream::Fit fit, const data::BlockStream::Options& options,
                std::function<std::optional<data::RowReading>()> reading)
      : epochs_(std::move(epochs)),
        epoch_(epoch),
        order_(epochs_.Of(epoch)),
        links_(links),
        times_(times),
        reading_(std::move(reading)),
        view_(batcher, rungs, std::move(features)),
        stream_(
            batcher, epochs_.batches_per_epoch() - first,
            [this, first, first_stream](int64_t index) {
              return RequestOf(first + index, first_stream + static_cast<uint64_t>(first + index));
            },
            std::move(fit), options) {}

  absl::StatusOr<HostBatch*> Next() override {
    PF_ASSIGN_OR_RETURN(data::BlockBatch * host, stream_.Next());
    if (host == nullptr) return nullptr;
    const data::LinkBatch* pairs = nullptr;
    if (links_ != nullptr) {
      const absl::MutexLock lock(&mu_);
      // The batch before's pairs go.
      if (given_) pairs_.pop_front();
      given_ = true;
      pairs = &pairs_.front();
    }
    view_.Bind(*host, pairs);
    return &view_;
  }
  std::optional<LookAhead> look_ahead() const override {
    LookAhead state = stream_.state();
    state.rows = reading_();
    return state;
  }

 private:
  // On the stream's thread.
  absl::StatusOr<data::BlockStream::Request> RequestOf(int64_t batch, uint64_t sample) {
    const auto ids = epochs_.Batch(order_, batch);
    if (links_ == nullptr) {
      PF_RETURN_IF_ERROR(times_.Of(ids, batch_times_));
      return data::BlockStream::Request{.seeds = ids, .sample = sample, .excluded = {}, .times = batch_times_};
    }
    data::LinkBatch made;
    PF_RETURN_IF_ERROR(links_->MakeBatch(ids, epoch_, made));
    const absl::MutexLock lock(&mu_);
    // It stays in its place while others come and go.
    const data::LinkBatch& pairs = pairs_.emplace_back(std::move(made));
    // A link with a time is no earlier than itself.
    return data::BlockStream::Request{.seeds = pairs.seeds,
                                      .sample = sample,
                                      .excluded = pairs.times.empty() ? pairs.positives() : data::SeedPairs(),
                                      .times = pairs.times};
  }

  const data::EpochOrder epochs_;
  const int64_t epoch_;
  const data::EpochBatches order_;
  const Links* const links_;
  const data::SeedTimes& times_;
  std::vector<int64_t> batch_times_;  // of the batch that was planned last
  absl::Mutex mu_;
  std::deque<data::LinkBatch> pairs_ ABSL_GUARDED_BY(mu_);  // of batches that were asked for, until they are used
  bool given_ = false;                                      // whether the first of them is the step's
  const std::function<std::optional<data::RowReading>()> reading_;
  SampledBatch view_;
  data::BlockStream stream_;
};

}  // namespace permafrost::train
