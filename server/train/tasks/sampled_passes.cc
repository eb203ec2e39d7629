#include "train/tasks/sampled_passes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::train {

using data::BlockSizes;

BatchShape SampledBatch::real() const {
  BatchShape shape = host_->real_shape();
  if (pairs_ != nullptr) shape.graphs = static_cast<int64_t>(pairs_->links);
  return shape;
}

BatchShape SampledBatch::least_padded() const {
  return form_.pads ? rungs_->Fit(host_->real).shape() : LeastPadded(host_->real).shape();
}

BatchShape SampledBatch::dynamic_shape() const {
  return form_.pads ? dynamic_sizes().shape() : graphcache::AtLeastDynamic(least_padded());
}

BlockSizes SampledBatch::dynamic_sizes() const {
  return AtLeastDynamic(LeastPadded(host_->real), batcher_->has_nonzeros());
}

absl::Status SampledBatch::PadToSizes(const BlockSizes& sizes) {
  return sizes == host_->padded ? absl::OkStatus() : batcher_->Pad(sizes, *host_);
}

absl::Status SampledBatch::PadToDynamic() { return form_.pads ? PadToSizes(dynamic_sizes()) : Pad(dynamic_shape()); }

absl::Status SampledBatch::Pad(const BatchShape& shape) {
  if (!form_.pads) {
    if (shape == least_padded()) return PadToSizes(LeastPadded(host_->real));
    return absl::InternalError(
        absl::StrCat("a block whose step knows its sizes by the shape was to be padded to ", ToString(shape)));
  }
  if (const BlockSizes* rung = rungs_->Find(shape)) return PadToSizes(*rung);
  return absl::InvalidArgumentError(absl::StrCat("a block cannot be padded to ", ToString(shape, kCountedSeeds),
                                                 ", which is none of the job's sizes"));
}

graphcache::StepInputs SampledBatch::Inputs(const int64_t& step) const {
  const data::GraphSummary& graph = batcher_->graph().summary();
  if (form_.flat) flat_.Set(*host_, graph.node_features.width);
  graphcache::StepInputs inputs = MakeInputs(*host_, keys_.For(host_->real, host_->padded), graph.num_targets, step,
                                             features_, form_.flat ? &flat_ : nullptr);
  if (pairs_ != nullptr) SetPairs(*pairs_, inputs);
  return inputs;
}

std::span<const uint32_t> SampledBatch::ids() const {
  return std::span(host_->nodes).first(static_cast<size_t>(host_->real_seeds));
}

std::span<const float> SampledBatch::labels() const {
  return std::span(host_->labels)
      .first(static_cast<size_t>(host_->real_seeds * batcher_->graph().summary().num_targets));
}

// A stream of the rest of one pass.
class SampledPasses::RestStream final : public BatchStream {
 public:
  RestStream(std::shared_ptr<SampledPasses> passes, int64_t pass) : passes_(std::move(passes)), pass_(pass) {}

  absl::StatusOr<HostBatch*> Next() override {
    if (passes_->pass_ != pass_) return nullptr;
    return passes_->Next();
  }

  std::optional<LookAhead> look_ahead() const override {
    LookAhead state = passes_->stream_.state();
    passes_->told_ = state;
    state.sampled_edges -= before_.sampled_edges;
    state.stalls -= before_.stalls;
    state.cut_batches -= before_.cut_batches;
    state.pages -= before_.pages;
    // Page faults are counted for the whole process. The other mode's stream has reported the faults before this
    // pass.
    state.pages.major_faults = data::MajorFaults() - faults_before_;
    state.rows = passes_->reading_();
    return state;
  }

 private:
  const std::shared_ptr<SampledPasses> passes_;
  const int64_t pass_;
  // The counters at the last report. Work done ahead counts for the pass during which it is reported.
  const LookAhead before_ = passes_->told_;
  const int64_t faults_before_ = data::MajorFaults();
};

SampledPasses::SampledPasses(Plan plan, const Source& source, const data::BlockStream::Options& options)
    : plan_(std::move(plan)),
      batches_(plan_.order.batches_per_epoch()),
      links_(source.links),
      times_(source.times),
      reading_(source.reading),
      pass_(plan_.first_pass),
      batch_(plan_.first_batch),
      view_(source.batcher, source.rungs, source.features, source.form),
      stream_(
          source.batcher, plan_.passes * batches_ - plan_.first_batch,
          [this](int64_t index) { return RequestOf(plan_.first_batch + index); }, source.fit, options) {
  BeginPassIfOver();
}

bool SampledPasses::IsAt(int64_t pass, int64_t batch) const {
  return pass == pass_ && batch == batch_ && pass < plan_.first_pass + plan_.passes;
}

std::unique_ptr<BatchStream> SampledPasses::Rest(std::shared_ptr<SampledPasses> passes, int64_t pass) {
  return std::make_unique<RestStream>(std::move(passes), pass);
}

void SampledPasses::BeginPassIfOver() {
  if (batch_ < batches_) return;
  ++pass_;
  batch_ = 0;
}

absl::StatusOr<HostBatch*> SampledPasses::Next() {
  PF_ASSIGN_OR_RETURN(data::BlockBatch * host, stream_.Next());
  if (host == nullptr) return nullptr;
  const int64_t ids = plan_.order.RandomSize(batch_);
  ++batch_;
  BeginPassIfOver();
  const data::LinkBatch* pairs = nullptr;
  if (links_ != nullptr) {
    const absl::MutexLock lock(&mu_);
    // Drops the pairs of the previous batch.
    if (given_) pairs_.pop_front();
    given_ = true;
    pairs = &pairs_.front();
  }
  view_.Bind(*host, pairs, ids);
  return &view_;
}

absl::StatusOr<data::BlockStream::Request> SampledPasses::RequestOf(int64_t index) {
  const int64_t pass = plan_.first_pass + index / batches_, batch = index % batches_;
  if (pass != planned_pass_) planned_ = plan_.order.Of(pass);
  planned_pass_ = pass;
  const auto ids = plan_.order.Batch(planned_, batch);
  const uint64_t sample = plan_.sample(pass, batch);
  if (links_ == nullptr) {
    PF_RETURN_IF_ERROR(times_.Of(ids, batch_times_));
    return data::BlockStream::Request{.seeds = ids, .sample = sample, .excluded = {}, .times = batch_times_};
  }
  data::LinkBatch made;
  PF_RETURN_IF_ERROR(links_->MakeBatch(ids, pass, made));
  const absl::MutexLock lock(&mu_);
  // A deque does not move an element while others are added or removed.
  const data::LinkBatch& pairs = pairs_.emplace_back(std::move(made));
  // A link with a time needs no exclusion: a sample draws only earlier links, so not the link itself.
  return data::BlockStream::Request{.seeds = pairs.seeds,
                                    .sample = sample,
                                    .excluded = pairs.times.empty() ? pairs.positives() : data::SeedPairs(),
                                    .times = pairs.times};
}

}  // namespace permafrost::train
