#include "api/streams/watch_sources.h"

#include "api/wire/convert_dataset.h"
#include "api/wire/convert_graph_cache.h"
#include "api/wire/convert_job.h"

namespace permafrost::api {

absl::StatusOr<Pull> JobWatch::Next(v1::Job& response) {
  PF_ASSIGN_OR_RETURN(jobs::Job job, jobs_.Get(id_, sent_epoch_));
  // A response has a piece of a long history. Clients stop at the terminal state, with which all the rest comes.
  if (jobs::IsTerminal(job.state) && job.epochs.size() == jobs::kMostEpochs) {
    PF_ASSIGN_OR_RETURN(
        job, jobs::GetInPieces(sent_epoch_, [this](int64_t after_epoch) { return jobs_.Get(id_, after_epoch); }));
  }
  response = JobToWire(job);
  google::protobuf::RepeatedPtrField<v1::EpochMetrics> epochs;
  epochs.Swap(response.mutable_epochs());
  // Runs on while nothing else changes: told with what does.
  google::protobuf::Duration device_time;
  const bool has_device_time = response.has_device_time();
  if (has_device_time) device_time.Swap(response.mutable_device_time());
  response.clear_device_time();
  std::string state = response.SerializeAsString();
  if (has_device_time) device_time.Swap(response.mutable_device_time());
  if (epochs.empty() && state == sent_state_) return Pull::kWait;
  sent_state_ = std::move(state);
  if (!epochs.empty()) sent_epoch_ = epochs.rbegin()->epoch();
  epochs.Swap(response.mutable_epochs());
  return jobs::IsTerminal(job.state) ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> JobWatch::Subscribe(ChangeHub::Listener listener) {
  return jobs_.Subscribe(id_, std::move(listener));
}

absl::StatusOr<Pull> GraphCacheWatch::Next(v1::GraphCache& response) {
  // The job before its cache: where it has ended, the cache that is read after it is the last one.
  PF_ASSIGN_OR_RETURN(const jobs::Job job, jobs_.Get(id_, jobs::kNoEpochs));
  PF_ASSIGN_OR_RETURN(const graphcache::Snapshot snapshot, jobs_.GetGraphCache(id_));
  const bool ended = jobs::IsTerminal(job.state);
  response = GraphCacheToWire(id_, snapshot);
  std::string bytes = response.SerializeAsString();
  if (bytes == sent_) return ended ? Pull::kEnd : Pull::kWait;
  sent_ = std::move(bytes);
  return ended ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> GraphCacheWatch::Subscribe(ChangeHub::Listener listener) {
  return jobs_.Subscribe(id_, std::move(listener));
}

absl::StatusOr<Pull> DatasetWatch::Next(v1::Dataset& response) {
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(id_));
  response = DatasetToWire(dataset);
  std::string bytes = response.SerializeAsString();
  if (bytes == sent_) return Pull::kWait;
  sent_ = std::move(bytes);
  return dataset.state == data::DatasetState::kImporting ? Pull::kMore : Pull::kLast;
}

std::unique_ptr<ChangeHub::Subscription> DatasetWatch::Subscribe(ChangeHub::Listener listener) {
  return catalog_.Subscribe(id_, std::move(listener));
}

}  // namespace permafrost::api
