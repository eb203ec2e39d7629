// Source of VerifyDataset: a thread reads the whole store and tells how far it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "api/slow_calls.h"
#include "api/stream.h"
#include "base/change_hub.h"
#include "data/store/dataset.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// Threads: as StreamSource; the reading thread begins with Subscribe and is told to stop, and joined, when destroyed.
class VerifyStream final : public StreamSource<v1::VerifyDatasetResponse> {
 public:
  // `hub` tells of progress under `key`, which no other stream has; outlives this. `slot` is held to the end.
  VerifyStream(data::OpenedDataset dataset, std::unique_ptr<SlowCalls::Slot> slot, ChangeHub& hub, std::string key)
      : dataset_(std::move(dataset)), slot_(std::move(slot)), hub_(hub), key_(std::move(key)) {}
  ~VerifyStream() override;

  absl::StatusOr<Pull> Next(v1::VerifyDatasetResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  void Verify();

  const data::OpenedDataset dataset_;
  const std::unique_ptr<SlowCalls::Slot> slot_;
  ChangeHub& hub_;
  const std::string key_;

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mu_);
  // Of Next alone.
  std::optional<uint64_t> sent_;            // bytes done, as told last
  absl::Time next_ = absl::InfinitePast();  // not to be told again before

  std::thread thread_;
};

}  // namespace permafrost::api
