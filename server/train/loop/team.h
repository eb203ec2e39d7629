// The ranks that train one job: alone, led by this daemon, or led by another.
// Threads: the device thread. A leader's team that may grow has a thread of its own, which asks peers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/device.h"
#include "base/monotonic.h"
#include "collective/tcp_group.h"
#include "spec/model.h"
#include "train/peers.h"
#include "train/runner.h"

namespace permafrost::train {

// Returns Ok if a server with this device and `peers` peers can lead a job of `replicas`; else InvalidArgument with a
// violation under `prefix`.
absl::Status CheckReplicas(int64_t replicas, DeviceKind device, int64_t peers, std::string_view prefix);

// Finds the rank of a job that the others wait for.
// Threads: not safe; one caller.
class StragglerWatch {
 public:
  // Takes what the ranks have done so far, by rank, at the time `now`. Returns one line about a rank that, for half a
  // minute, computed longer for a step than 1.5 times the median of the others, once for each. Times without steps of
  // all ranks, such as an evaluation, are left out.
  std::optional<std::string> Look(const std::vector<RankProgress>& ranks, absl::Duration now);

 private:
  absl::Duration window_begin_ = absl::ZeroDuration();
  std::vector<RankProgress> before_;  // at the window's begin
  int64_t slowest_ = -1;              // that stood out last; -1: none yet
  int windows_ = 0;                   // in a row in which it stood out
  std::set<int64_t> told_;
};

struct TeamOptions {
  // The daemons that may be asked, which outlive the team; nullptr: there are none.
  Peers* peers = nullptr;
  // How long a step waits for another rank.
  absl::Duration step_timeout = absl::Seconds(30);
  // As RecruitRequest::patience.
  absl::Duration patience = absl::ZeroDuration();
  // Time between two questions whether another daemon would join a team that is smaller than the job wants.
  absl::Duration look_interval = absl::Seconds(5);
};

class Team {
 public:
  // Finds up to `replicas` daemons for the request, at least as many as its options ask for, and connects them.
  // Errors: Unavailable, transient, with kTooFewPeersReason if too few daemons join, and with kRankLostReason if one of
  // them does not connect; FailedPrecondition, if a peer says that the job cannot be trained; Cancelled, if a stop was
  // asked for.
  static absl::StatusOr<std::unique_ptr<Team>> Form(const RunRequest& request, const TeamOptions& options,
                                                    RunContext& context);
  ~Team();

  int64_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int64_t size() const { return group_ == nullptr ? 1 : group_->size(); }
  // nullptr: there are no others.
  collective::Group* group() const { return group_.get(); }
  // True if this team has other ranks, or may get some.
  bool is_shared() const { return group_ != nullptr || recruits_ != nullptr; }
  // Gives each rank the archive of the leader's program. Errors: those of ReadFile; ResourceExhausted on all ranks
  // where it is too large for one; throws as the group.
  absl::Status ShareProgram(spec::ModelOptions& model) const;
  // Returns `error`, with which the run ended; where another rank is the cause, a transient error with kRankLostReason
  // that names it, or Cancelled if a stop was asked for while that rank kept this one waiting.
  absl::Status Explain(absl::Status error, const RunContext& context) const;
  // True once another daemon would join a team that is smaller than the job wants it. Cheap.
  bool can_grow() const { return can_grow_.load(std::memory_order_relaxed); }
  // Lets can_grow() be false until the peers were asked again.
  void PutOffGrowth() { can_grow_.store(false, std::memory_order_relaxed); }
  // Waits a moment for what the other ranks tell when they have trained to the job's end. For the leader.
  void AwaitLastReports() const;
  // Returns what the ranks exchanged and did. `own`: this rank's steps; it has no address.
  Exchange Report(const RankProgress& own) const;
  // Writes to the job's log which rank keeps the others waiting, and why peers do not join, each once. For the leader.
  void TellNews(const std::vector<RankProgress>& ranks, RunContext& context);

 private:
  // The lines of the thread that asks peers, each once. Threads: safe anywhere.
  class News {
   public:
    void Add(std::string_view line);
    std::vector<std::string> Take();

   private:
    absl::Mutex mu_;
    std::set<std::string> all_ ABSL_GUARDED_BY(mu_);
    std::vector<std::string> new_ ABSL_GUARDED_BY(mu_);
  };

  Team() = default;
  absl::Status ConnectRecruits(collective::TcpOptions options, const std::function<bool()>& asked_to_stop);
  // Waits until all ranks are connected. Errors: as Explain.
  absl::Status Meet(const RunContext& context) const;
  // Returns the error of a lost rank: what its daemon answered if its call has ended, else `seen`, which this rank met.
  absl::Status WhyLost(const absl::Status& seen) const;
  // The body of the thread that asks if others would join, until the team ends.
  void LookForOthers(Peers& peers, const RecruitRequest& request, absl::Duration interval);

  // Destroyed from the last to the first: the group before its recruits, these before the rendezvous.
  std::unique_ptr<collective::Rendezvous> rendezvous_;
  std::unique_ptr<Recruits> recruits_;
  std::unique_ptr<collective::Group> group_;
  const Stopwatch formed_;
  StragglerWatch straggler_;
  News news_;
  std::atomic<bool> can_grow_ = false;
  Event ends_;  // set when the team ends
  std::thread looks_;
};

}  // namespace permafrost::train
