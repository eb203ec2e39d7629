#include "api/streams/server_stream.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace permafrost::api {
namespace {

// Bounds on the interval at which the set checks its streams. A stream thus ends soon after its limit or the
// revocation of its token, and the checks cause hardly any load.
constexpr absl::Duration kLongestLook = absl::Seconds(1);
constexpr absl::Duration kShortestLook = absl::Milliseconds(10);
constexpr int kWorkers = 8;
// The sum of the limits of all kinds of streams is smaller than this.
constexpr size_t kMostStreams = 1 << 20;

}  // namespace

absl::Status ServerStops() { return absl::UnavailableError("the server stops; ask again when it is back"); }

void AbortUnread(grpc::CallbackServerContext& context, absl::Duration unread) {
  const std::string why = absl::StrCat("ended by the server: its client read nothing for ",
                                       absl::FormatDuration(absl::Floor(unread, absl::Milliseconds(1))));
  grpc_call_cancel_with_status(context.c_call(), GRPC_STATUS_ABORTED, why.c_str(), /*reserved=*/nullptr);
}

void AbortRefused(grpc::CallbackServerContext& context, const absl::Status& refused) {
  grpc_call_cancel_with_status(context.c_call(), static_cast<grpc_status_code>(refused.raw_code()),
                               std::string(refused.message()).c_str(), /*reserved=*/nullptr);
}

void TellDropped(grpc::CallbackServerContext& context, int64_t dropped) {
  context.AddTrailingMetadata("permafrost-dropped-states", absl::StrCat(dropped));
}

StreamSet::StreamSet(absl::Duration unread, Admission admission, DroppedObserver dropped)
    : unread_(unread),
      admission_(std::move(admission)),
      dropped_(std::move(dropped)),
      workers_(kWorkers, kMostStreams),
      thread_([this] { LookAfter(); }) {}

StreamSet::~StreamSet() {
  closing_.Set();
  thread_.join();
}

void StreamSet::LookAfter() {
  const absl::Duration look = std::clamp(unread_ / 4, kShortestLook, kLongestLook);
  while (!closing_.WaitFor(look)) {
    absl::MutexLock lock(&mu_);
    for (Member* member : members_) {
      member->EndIfUnread(unread_);
      member->EndIfRefused();
    }
  }
}

void StreamSet::Add(Member* member) {
  absl::MutexLock lock(&mu_);
  members_.insert(member);
  if (stopped_) member->Stop();
}

void StreamSet::Remove(Member* member) {
  absl::MutexLock lock(&mu_);
  members_.erase(member);
}

void StreamSet::StopAll() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  // gRPC runs OnDone, and thus Remove, on its own thread. So Remove is never called from within Stop, and can wait
  // for the lock.
  for (Member* member : members_) member->Stop();
}

}  // namespace permafrost::api
