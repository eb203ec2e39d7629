#include "api/log_source.h"

namespace permafrost::api {
namespace {

constexpr int64_t kLogPieceBytes = 64 << 10;

}  // namespace

absl::StatusOr<Pull> LogSource::Next(v1::StreamJobLogsResponse& response) {
  PF_ASSIGN_OR_RETURN(jobs::LogChunk chunk, jobs_.ReadLog(id_, offset_, kLogPieceBytes));
  offset_ = chunk.next_offset;
  const bool over = chunk.complete || (!follow_ && chunk.at_end);
  if (chunk.data.empty()) return over ? Pull::kEnd : Pull::kWait;
  response.set_data(std::move(chunk.data));
  response.set_next_offset(offset_);
  return over ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> LogSource::Subscribe(ChangeHub::Listener listener) {
  return follow_ ? jobs_.SubscribeLog(id_, std::move(listener)) : nullptr;
}

}  // namespace permafrost::api
