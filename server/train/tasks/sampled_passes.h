// Makes batches of sampled blocks, pass after pass. A pass is an epoch of training, or an evaluation.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "data/batching/block_batch.h"
#include "data/batching/block_stream.h"
#include "data/batching/pair_batch.h"
#include "data/rows/row_cache.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/epoch_order.h"
#include "train/planning/block_rungs.h"
#include "train/tasks/feature_table.h"
#include "train/tasks/links.h"
#include "train/tasks/step_inputs.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// The form that blocks have for a job's model.
struct BlockForm {
  bool pads = true;   // whether blocks may have more than the least padding
  bool flat = false;  // whether blocks have the form that programs read (FlatBlock)
};

// A sampled block. Threads: one at a time. Borrows the batcher, the rungs and the batch that it is bound to.
class SampledBatch final : public HostBatch {
 public:
  // `features` is the table of all nodes, if the batcher gathers no features. If `form` does not pad to rungs, the
  // block is padded only as far as it must be, to LeastPadded of its sizes.
  SampledBatch(const data::BlockBatcher& batcher, const BlockRungs& rungs, FeatureTable features = {},
               BlockForm form = {})
      : batcher_(&batcher), rungs_(&rungs), features_(std::move(features)), form_(form) {}
  // Binds this object to the batch `host`, until the next call. If the job predicts links, `pairs` are pairs of the
  // seeds, otherwise null. The batch of all ranks has `ids_of_all_ranks` nodes or links, a number that only progress
  // reports use. `host` is this rank's share of it.
  void Bind(data::BlockBatch& host, const data::LinkBatch* pairs, int64_t ids_of_all_ranks = 0) {
    host_ = &host;
    pairs_ = pairs;
    ids_of_all_ranks_ = ids_of_all_ranks;
  }

  BatchShape real() const override;
  // Returns the shape of the block's rung. If the form does not pad, returns the block's own shape with the least
  // padding.
  BatchShape least_padded() const override;
  BatchShape dynamic_shape() const override;
  BatchShape padded() const override { return host_->padded.shape(); }
  std::span<const uint32_t> ids() const override;
  int64_t ids_of_all_ranks() const override { return ids_of_all_ranks_; }
  std::span<const float> labels() const override;

 private:
  absl::Status Pad(const BatchShape& shape) override;
  absl::Status PadToDynamic() override;
  absl::Status PadToSizes(const data::BlockSizes& sizes);
  data::BlockSizes dynamic_sizes() const;
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  const data::BlockBatcher* batcher_;
  const BlockRungs* rungs_;
  FeatureTable features_;
  BlockForm form_;
  data::BlockBatch* host_ = nullptr;
  const data::LinkBatch* pairs_ = nullptr;
  int64_t ids_of_all_ranks_ = 0;
  mutable RowKeys keys_;
  mutable FlatBlock flat_;
};

// The batches of several passes of one mode, sampled and gathered ahead of the step. The stream does not stop at the
// end of a pass, but makes the first batches of the next one. So epochs find batches ready after an evaluation, and
// evaluations after an epoch. Threads: same as BatchStream. A separate thread, the stream's, plans the batches.
class SampledPasses {
 public:
  // Says which batches the passes have.
  struct Plan {
    data::EpochOrder order;  // gets the number of the pass as its epoch
    int64_t first_pass = 0;
    int64_t first_batch = 0;  // the first batch of the first pass
    int64_t passes = 1;
    // Returns the sample number of a batch of a pass (NeighborSampler::Sample).
    std::function<uint64_t(int64_t pass, int64_t batch)> sample;
  };
  // The parts that make the batches. The batcher, the rungs, `links` and `times` are borrowed. `links` is null if
  // nodes are predicted. `times` holds the times of nodes.
  struct Source {
    data::BlockBatcher& batcher;
    const BlockRungs& rungs;
    FeatureTable features;
    BlockForm form;
    const Links* links;
    const data::SeedTimes& times;
    data::BlockStream::Fit fit;
    std::function<std::optional<data::RowReading>()> reading;
  };
  SampledPasses(Plan plan, const Source& source, const data::BlockStream::Options& options);

  // Returns whether batch number `batch` of `pass` exists and is the next one to be taken.
  bool IsAt(int64_t pass, int64_t batch) const;
  // Returns a stream of the batches of `pass` that are not taken yet. `pass` must be the pass of the next batch, or
  // the pass before it. For the pass before it, the stream is empty. Only one stream may be in use at a time.
  static std::unique_ptr<BatchStream> Rest(std::shared_ptr<SampledPasses> passes, int64_t pass);

 private:
  class RestStream;

  absl::StatusOr<HostBatch*> Next();
  void BeginPassIfOver();
  // Runs on the stream's thread.
  absl::StatusOr<data::BlockStream::Request> RequestOf(int64_t index);

  const Plan plan_;
  const int64_t batches_;  // batches of one pass
  const Links* const links_;
  const data::SeedTimes& times_;
  const std::function<std::optional<data::RowReading>()> reading_;
  int64_t pass_, batch_;  // position of the next batch
  LookAhead told_;        // counters over all passes, at the last report
  // These belong to the stream's thread.
  int64_t planned_pass_ = -1;
  data::EpochBatches planned_;        // the batches of planned_pass_
  std::vector<int64_t> batch_times_;  // the times of the batch that was planned last

  absl::Mutex mu_;
  std::deque<data::LinkBatch> pairs_ ABSL_GUARDED_BY(mu_);  // pairs of the batches that were requested and not yet used
  bool given_ = false;                                      // whether the caller's present batch uses pairs_.front()
  SampledBatch view_;
  data::BlockStream stream_;
};

}  // namespace permafrost::train
