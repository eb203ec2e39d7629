#include "api/verify_source.h"

#include <utility>
#include <variant>

namespace permafrost::api {
namespace {

constexpr absl::Duration kVerifyInterval = absl::Milliseconds(250);

absl::Status VerifyStore(const data::OpenedDataset& dataset, const StreamWork::OnProgress& on_progress) {
  const auto tell = [&](uint64_t done, uint64_t total) {
    return on_progress(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  return std::visit([&](const auto& opened) { return opened->VerifyAll(tell); }, dataset);
}

}  // namespace

VerifySource::VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key)
    : work_("the verification", hub, std::move(key),
            [dataset = std::move(dataset)](const StreamWork::OnProgress& on_progress) {
              return VerifyStore(dataset, on_progress);
            }) {}

std::unique_ptr<ChangeHub::Subscription> VerifySource::Subscribe(ChangeHub::Listener listener) {
  return work_.Start(std::move(listener));
}

absl::StatusOr<Pull> VerifySource::Next(v1::VerifyDatasetResponse& response) {
  StreamWork::State state = work_.Read();
  if (state.outcome && !state.outcome->ok()) return *state.outcome;
  if (state.outcome) {
    state.done = state.total;
    if (sent_ == state.done) return Pull::kEnd;
  } else if (state.total == 0 || sent_ == state.done || (since_sent_ && since_sent_->Elapsed() < kVerifyInterval)) {
    return Pull::kWait;  // A notice comes soon: of more bytes, or of the end.
  }
  sent_ = state.done;
  since_sent_.emplace();
  response.set_bytes_done(state.done);
  response.set_bytes_total(state.total);
  return state.outcome ? Pull::kLast : Pull::kMore;
}

}  // namespace permafrost::api
