#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/explain_view.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/requests.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr int64_t kMaxJobsInPage = 1000;

struct ListFlags {
  std::vector<std::string> states;
  std::string filter;
  // 0 lists all jobs.
  int64_t limit = 0;
};

ExitCode ListJobs(Session& session, const ListFlags& flags) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::ListJobsRequest request;
  for (const std::string& state : flags.states)
    request.add_states(static_cast<v1::Job::State>(ParseEnum(*v1::Job::State_descriptor(), state).value_or(0)));
  request.set_filter(flags.filter);
  v1::ListJobsResponse all;
  do {
    if (flags.limit > 0)
      request.set_page_size(static_cast<int32_t>(std::min(kMaxJobsInPage, flags.limit - all.jobs_size())));
    v1::ListJobsResponse page;
    const grpc::Status status =
        session.Unary([&](grpc::ClientContext* context) { return stub->ListJobs(context, request, &page); });
    if (!status.ok()) return session.Fail(status);
    all.mutable_jobs()->MergeFrom(page.jobs());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && (flags.limit == 0 || all.jobs_size() < flags.limit));
  if (session.json()) {
    session.PrintJson(all);
  } else if (all.jobs().empty()) {
    session.Print(
        flags.states.empty() && flags.filter.empty()
            ? absl::StrCat("no jobs; submit one with: ", session.CommandLine("job submit --dataset NAME"), "\n")
        : flags.filter.empty() ? "no jobs in these states\n"
                               : "no jobs for which the filter holds\n");
  } else {
    session.Print(RenderJobList({all.jobs().begin(), all.jobs().end()}, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode ShowJob(Session& session, const std::string& id) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::GetJobRequest request;
  request.set_name(WithCollection("jobs", id));
  v1::Job job;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetJob(context, request, &job); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(job);
  } else {
    session.Print(RenderJob(job, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode CancelJob(Session& session, const std::string& id) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::CancelJobRequest request;
  request.set_name(WithCollection("jobs", id));
  request.set_request_id(MakeUuid());
  v1::Job job;
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return stub->CancelJob(context, request, &job); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(job);
  } else {
    session.Print(absl::StrCat("job ", OneLine(StripCollection("jobs", id)), " ", StateName(job.state()), "\n"));
  }
  return ExitCode::kOk;
}

ExitCode DeleteJob(Session& session, const std::string& id) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::DeleteJobRequest request;
  request.set_name(WithCollection("jobs", id));
  request.set_request_id(MakeUuid());
  google::protobuf::Empty empty;
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return stub->DeleteJob(context, request, &empty); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(empty);
  } else {
    session.Print(absl::StrCat("deleted job ", OneLine(StripCollection("jobs", id)), "\n"));
  }
  return ExitCode::kOk;
}

void AddList(CLI::App& job, Command& chosen) {
  CLI::App* list = job.add_subcommand("list", "Jobs, the newest first");
  const auto flags = std::make_shared<ListFlags>();
  list->add_option("--state", flags->states, "Only jobs in one of these states")
      ->check(OneOf(EnumShortNames(*v1::Job::State_descriptor())))
      ->delimiter(',')
      ->type_name(CLI::detail::join(EnumShortNames(*v1::Job::State_descriptor()), "|"));
  list->add_option("--filter", flags->filter,
                   "Only jobs for which this holds, as 'state = RUNNING AND labels.team = \"gnn\" AND priority >= 5'; "
                   "fields: name, state, dataset, labels.KEY, priority, create_time, start_time, end_time; = != < <= > "
                   ">= : (labels.KEY:* has it), NOT, OR (binds closer than AND), AND, parentheses")
      ->type_name("FILTER");
  list->add_option("--limit", flags->limit, "At most that many (default: all)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30).description(""))
      ->type_name("N");
  list->callback([flags, &chosen] { chosen = [flags](Session& session) { return ListJobs(session, *flags); }; });
}

using OnJob = ExitCode (*)(Session&, const std::string&);

void AddForOneJob(CLI::App& job, const char* name, const char* help, OnJob run, Command& chosen) {
  CLI::App* command = job.add_subcommand(name, help);
  const auto id = std::make_shared<std::string>();
  command->add_option("ID", *id, "The job")->type_name("")->required();
  command->callback([id, run, &chosen] { chosen = [id, run](Session& session) { return run(session, *id); }; });
}

}  // namespace

void AddJobCommands(CLI::App& app, Command& chosen) {
  CLI::App* job = app.add_subcommand("job", "Training jobs")->require_subcommand(1);
  AddJobSubmit(*job, chosen);
  AddJobSweep(*job, chosen);
  AddList(*job, chosen);
  AddForOneJob(*job, "show", "Everything about one job: description, progress, epochs, result", ShowJob, chosen);
  AddJobExplain(*job, chosen);
  AddJobWatch(*job, chosen);
  AddJobLogs(*job, chosen);
  AddForOneJob(*job, "cancel", "Stop a queued or running job at its next step, after a checkpoint", CancelJob, chosen);
  AddForOneJob(*job, "delete", "Delete a job that has ended, with its checkpoints and log", DeleteJob, chosen);
  AddJobVerbs(*job, chosen);
  AddJobWait(*job, chosen);
  AddJobCompare(*job, chosen);
  AddJobReport(*job, chosen);
  AddJobExport(*job, chosen);
  AddJobEvaluate(*job, chosen);
}

namespace {

ExitCode ExplainJob(Session& session, const std::string& job) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::ExplainGraphCacheRequest request;
  request.set_name(CacheName(job));
  v1::ExplainGraphCacheResponse explanation;
  const grpc::Status status = session.Unary(
      [&](grpc::ClientContext* context) { return stub->ExplainGraphCache(context, request, &explanation); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(explanation);
  } else {
    session.Print(RenderExplanation(explanation, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobExplain(CLI::App& job, Command& chosen) {
  CLI::App* command = job.add_subcommand(
      "explain",
      "Why a job compiled and missed what it did, what its audits found, and a step's time by operator and line");
  const auto id = std::make_shared<std::string>();
  command->add_option("ID", *id, "The job")->type_name("")->required();
  command->callback([id, &chosen] { chosen = [id](Session& session) { return ExplainJob(session, *id); }; });
}

namespace {

struct LogFlags {
  std::string id;
  bool follow = false;
  int64_t offset = 0;
  int64_t tail = 0;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Logs(Session& session, const LogFlags& flags) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::StreamJobLogsRequest request;
  request.set_name(WithCollection("jobs", flags.id));
  request.set_follow(flags.follow);
  request.set_offset(flags.tail > 0 ? -flags.tail : flags.offset);
  const FollowResult result = Follow<v1::StreamJobLogsResponse>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub->StreamJobLogs(context, request); },
      [&](const v1::StreamJobLogsResponse& piece) {
        if (session.json()) {
          session.PrintJson(piece);
        } else {
          session.Print(piece.data());
        }
        session.terminal().Flush();
        // If the server goes away, the next call continues from this offset.
        request.set_offset(piece.next_offset());
        return false;
      },
      /*ok_is_end=*/true);
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  return result.end == FollowEnd::kDone ? ExitCode::kOk : session.Fail(result.failure);
}

}  // namespace

void AddJobLogs(CLI::App& job, Command& chosen) {
  CLI::App* logs = job.add_subcommand("logs", "A job's log, as it is, on standard output");
  const auto flags = std::make_shared<LogFlags>();
  logs->add_option("ID", flags->id, "The job")->type_name("")->required();
  logs->add_flag("--follow", flags->follow, "Go on until the job ends");
  CLI::Option* offset =
      logs->add_option("--offset", flags->offset, "Byte to begin at (default 0)")->check(NotNegative())->type_name("N");
  logs->add_option("--tail", flags->tail, "Begin that many bytes before the present end")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->excludes(offset)
      ->type_name("BYTES");
  AddReconnectOption(*logs, flags->reconnect_seconds);
  logs->callback([flags, &chosen] { chosen = [flags](Session& session) { return Logs(session, *flags); }; });
}

}  // namespace permafrost::client
