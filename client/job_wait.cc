// `permafrost job wait`: the exit code tells how jobs ended.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_view.h"
#include "grpcpp/support/time.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

struct WaitFlags {
  std::vector<std::string> ids;
  // Not set: forever.
  std::optional<double> seconds;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

class Wait {
 public:
  Wait(Session& session, const WaitFlags& flags)
      : session_(session),
        ids_(flags.ids),
        most_(flags.seconds ? absl::Seconds(*flags.seconds) : absl::InfiniteDuration()),
        reconnect_(absl::Seconds(flags.reconnect_seconds)) {}

  ExitCode Run() {
    for (const std::string& id : ids_) {
      v1::Job job;
      const FollowResult result = Watch(id, job);
      if (result.end != FollowEnd::kInterrupted && Left() <= absl::ZeroDuration() && !IsTerminal(job.state())) {
        return session_.Fail(TimedOutFailure(absl::StrCat("job ", Short(id), " is ", StateName(job.state()), " after ",
                                                          DurationText(most_), "; it goes on")));
      }
      if (result.end == FollowEnd::kFailed) return session_.Fail(result.failure);
      if (result.end == FollowEnd::kInterrupted) return session_.Interrupted("the jobs go on");
      Told(job);
    }
    if (bad_.empty()) return ExitCode::kOk;
    return session_.Fail(EndedBadlyFailure(
        bad_.size() == 1 && ids_.size() == 1
            ? absl::StrCat("job ", bad_.front())
            : absl::StrCat(bad_.size(), " of ", ids_.size(), " jobs did not succeed: ", absl::StrJoin(bad_, "; "))));
  }

 private:
  absl::Duration Left() const { return most_ - since_.Elapsed(); }
  static std::string Short(const std::string& id) { return OneLine(StripCollection("jobs", id)); }

  // Until the job has ended; `job` is it as it was seen last.
  FollowResult Watch(const std::string& id, v1::Job& job) {
    const auto stub = v1::JobService::NewStub(session_.channel());
    v1::WatchJobRequest request;
    request.set_name(WithCollection("jobs", id));
    return Follow<v1::Job>(
        session_, std::min(reconnect_, std::max(absl::ZeroDuration(), Left())),
        [&](grpc::ClientContext* context) {
          if (most_ != absl::InfiniteDuration()) {
            context->set_deadline(gpr_time_from_nanos(absl::ToInt64Nanoseconds(Left()), GPR_TIMESPAN));
          }
          return stub->WatchJob(context, request);
        },
        [&](const v1::Job& seen) {
          job = seen;
          job.clear_epochs();
          return IsTerminal(job.state());
        },
        /*ok_is_end=*/false);
  }

  void Told(const v1::Job& job) {
    const std::string line = absl::StrCat(
        Short(job.name()), " ", job.state() == v1::Job::STATE_CANCELLED ? "was cancelled" : StateName(job.state()),
        job.error().empty() ? "" : ": ", OneLine(job.error()));
    if (job.state() != v1::Job::STATE_SUCCEEDED) bad_.push_back(line);
    if (session_.json()) {
      session_.PrintJson(job);
    } else if (job.state() == v1::Job::STATE_SUCCEEDED || ids_.size() > 1) {
      session_.terminal().Line(absl::StrCat("job ", line));
    }
  }

  Session& session_;
  const std::vector<std::string>& ids_;
  const absl::Duration most_, reconnect_;
  const Stopwatch since_;
  std::vector<std::string> bad_;
};

}  // namespace

void AddJobWait(CLI::App& job, Command& chosen) {
  CLI::App* wait = job.add_subcommand(
      "wait",
      "Wait until jobs have ended; exits with 0 if all succeeded, else with 1, with 6 where the time is over "
      "before. A paused job has not ended");
  const auto flags = std::make_shared<WaitFlags>();
  wait->add_option("ID", flags->ids, "The jobs")->type_name("")->required();
  wait->add_option("--timeout", flags->seconds, "How long in all (default: for ever)")
      ->check(CLI::Range(0.001, 1e9).description(""))
      ->type_name("SECONDS");
  AddReconnectOption(*wait, flags->reconnect_seconds);
  wait->callback([flags, &chosen] { chosen = [flags](Session& session) { return Wait(session, *flags).Run(); }; });
}

}  // namespace permafrost::client
