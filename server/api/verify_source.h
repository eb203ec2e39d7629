// Source of VerifyDataset: a thread reads the whole store and reports how far it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "api/server_stream.h"
#include "api/stream_work.h"
#include "base/change_hub.h"
#include "base/monotonic.h"
#include "data/store/dataset.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// Threads: as StreamSource; the reading thread starts in Subscribe, and is stopped and joined in the destructor.
class VerifySource final : public StreamSource<v1::VerifyDatasetResponse> {
 public:
  // hub, key: as StreamWork.
  VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::VerifyDatasetResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  StreamWork work_;
  std::optional<int64_t> sent_;  // bytes done, as sent last
  std::optional<Stopwatch> since_sent_;
};

}  // namespace permafrost::api
