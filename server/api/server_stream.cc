#include "api/server_stream.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace permafrost::api {
namespace {

// How often the writes are looked at: fine enough for any limit, and no load.
constexpr absl::Duration kLongestLook = absl::Seconds(15);
constexpr absl::Duration kShortestLook = absl::Milliseconds(10);
constexpr int kWorkers = 8;
// More than the limits of all kinds of streams together.
constexpr size_t kMostStreams = 1 << 20;

}  // namespace

absl::Status ServerStops() { return absl::UnavailableError("the server stops; ask again when it is back"); }

void AbortUnread(grpc::CallbackServerContext& context, absl::Duration unread) {
  const std::string why = absl::StrCat("ended by the server: its client read nothing for ",
                                       absl::FormatDuration(absl::Floor(unread, absl::Milliseconds(1))));
  grpc_call_cancel_with_status(context.c_call(), GRPC_STATUS_ABORTED, why.c_str(), /*reserved=*/nullptr);
}

StreamSet::StreamSet(absl::Duration unread)
    : unread_(unread), workers_(kWorkers, kMostStreams), thread_([this] { EndUnread(); }) {}

StreamSet::~StreamSet() {
  closing_.Set();
  thread_.join();
}

void StreamSet::EndUnread() {
  const absl::Duration look = std::clamp(unread_ / 4, kShortestLook, kLongestLook);
  while (!closing_.WaitFor(look)) {
    absl::MutexLock lock(&mu_);
    for (Member* member : members_) member->EndIfUnread(unread_);
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
  // gRPC runs OnDone, and so Remove, on a thread of its own: it waits for the lock and cannot come from within Stop.
  for (Member* member : members_) member->Stop();
}

}  // namespace permafrost::api
