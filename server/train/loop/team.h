// The ranks that train one job. A team is this daemon alone, or several daemons of which one is the leader.
// Threads: the device thread. If a leader's team may grow, another thread asks peers.
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

// Checks that a server with this device and `peers` peers can lead a job with `replicas` replicas.
// Errors: InvalidArgument with a violation under `prefix`.
absl::Status CheckReplicas(int64_t replicas, DeviceKind device, int64_t peers, std::string_view prefix);

// Finds a rank that keeps the others waiting.
// Threads: one caller at a time.
class StragglerWatch {
 public:
  // Returns a line about a slow rank, once for each such rank. `ranks` is the progress at the time `now`, by rank. A
  // rank is slow if, for half a minute, its compute time of a step was over 1.5 times the median of the other ranks'
  // times. Ignores periods in which some rank has no steps, such as an evaluation.
  std::optional<std::string> Look(const std::vector<RankProgress>& ranks, absl::Duration now);

 private:
  absl::Duration window_begin_ = absl::ZeroDuration();
  std::vector<RankProgress> before_;  // progress at the begin of the window
  int64_t slowest_ = -1;              // the slow rank of the last window that had one; -1 if there is none yet
  int windows_ = 0;                   // windows in a row in which slowest_ was slow
  std::set<int64_t> told_;
};

struct TeamOptions {
  // The daemons that may be asked for ranks. They outlive the team. Null if there are none.
  Peers* peers = nullptr;
  // The time that a step waits for another rank.
  absl::Duration step_timeout = absl::Seconds(30);
  // Same as RecruitRequest::patience.
  absl::Duration patience = absl::ZeroDuration();
  // While a team has fewer daemons than the job wants, it asks at this interval whether another daemon would join.
  absl::Duration look_interval = absl::Seconds(5);
};

class Team {
 public:
  // Forms the team of a request and connects its daemons. The team has at most options.replicas daemons, and at least
  // as many as the options demand.
  // Errors: Unavailable (transient), with kTooFewPeersReason if too few daemons join, or kRankLostReason if one does
  // not connect. FailedPrecondition if a peer says that the job cannot be trained. Cancelled if a stop was requested.
  static absl::StatusOr<std::unique_ptr<Team>> Form(const RunRequest& request, const TeamOptions& options,
                                                    RunContext& context);
  ~Team();

  int64_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int64_t size() const { return group_ == nullptr ? 1 : group_->size(); }
  // Returns the connected ranks, or null if this rank is the only one.
  collective::Group* group() const { return group_.get(); }
  // Returns true if this team has other ranks, or may get some.
  bool is_shared() const { return group_ != nullptr || recruits_ != nullptr; }
  // Gives each rank the archive of the leader's program.
  // Errors: those of ReadFile; ResourceExhausted on all ranks if the archive is too large for one of them. Throws the
  // exceptions of the group's exchanges.
  absl::Status ShareProgram(spec::ModelOptions& model) const;
  // Returns the cause of `error`, which ended the run. If another rank is the cause, returns a transient error with
  // kRankLostReason that names the rank. If a stop was requested while this rank waited for that rank, returns
  // Cancelled instead. Otherwise returns `error`.
  absl::Status Explain(absl::Status error, const RunContext& context) const;
  // Returns true if the team is smaller than the job wants, and another daemon has said that it would join. Cheap.
  bool can_grow() const { return can_grow_.load(std::memory_order_relaxed); }
  // Makes can_grow() return false until a peer that is asked after this call would join.
  void PutOffGrowth() { can_grow_.store(false, std::memory_order_relaxed); }
  // Waits a moment for the other ranks' last reports, after they have trained to the job's end. Only for the leader.
  void AwaitLastReports() const;
  // Returns the counts of exchanges, and the progress of the ranks. `own` is this rank's progress, without an
  // address.
  Exchange Report(const RankProgress& own) const;
  // Logs a line about a rank that keeps the others waiting, and the reasons why peers do not join. Logs equal lines
  // only once. Only for the leader.
  void TellNews(const std::vector<RankProgress>& ranks, RunContext& context);

 private:
  // Collects lines from the thread that asks peers, and drops repeated lines.
  // Threads: thread-safe.
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
  // Waits until all ranks are connected. Errors: those of Explain.
  absl::Status Meet(const RunContext& context) const;
  // Returns the error of a lost rank. This is its daemon's answer if the call to that daemon has ended, and otherwise
  // `seen`, the error that this rank met.
  absl::Status WhyLost(const absl::Status& seen) const;
  // Asks peers, once per `interval` until the team ends, whether one would join. Runs on a thread of its own.
  void LookForOthers(Peers& peers, const RecruitRequest& request, absl::Duration interval);

  // Members are destroyed from the last to the first: group_ before recruits_, and recruits_ before rendezvous_.
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
