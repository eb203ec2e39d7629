// Source of VerifyDataset: a thread reads the whole store and reports how far it is.
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
#include "api/server_stream.h"
#include "base/change_hub.h"
#include "base/monotonic.h"
#include "data/store/dataset.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// Threads: as StreamSource; the reading thread starts in Subscribe, and is stopped and joined in the destructor.
class VerifySource final : public StreamSource<v1::VerifyDatasetResponse> {
 public:
  // `hub` gives notice of progress under `key`, which no other stream has; outlives this.
  VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key)
      : dataset_(std::move(dataset)), hub_(hub), key_(std::move(key)) {}
  ~VerifySource() override;

  absl::StatusOr<Pull> Next(v1::VerifyDatasetResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  void Verify();
  void End(absl::Status outcome);

  const data::OpenedDataset dataset_;
  ChangeHub& hub_;
  const std::string key_;

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mu_);
  // Of Next alone.
  std::optional<uint64_t> sent_;  // bytes done, as sent last
  std::optional<Stopwatch> since_sent_;

  std::thread thread_;
};

}  // namespace permafrost::api
