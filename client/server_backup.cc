#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_create.h"
#include "client/progress.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
namespace {

struct BackupFlags {
  std::string directory;
  bool with_datasets = false;
};

std::string NamesText(const char* collection, const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", OneLine(StripCollection(collection, name)));
  }
  return text;
}

std::string BackupText(const v1::BackupSummary& summary, absl::Duration took) {
  std::string text = absl::StrCat("backup ", OneLine(summary.path()), " is whole: ", CountText(summary.jobs()),
                                  " jobs, ", CountText(summary.files()), " files, ", BytesText(summary.bytes()), " in ",
                                  DurationText(took), "\n");
  if (!summary.datasets_wanted().empty()) {
    absl::StrAppend(
        &text, "not in it, and wanted by jobs that have not ended: ", NamesText("datasets", summary.datasets_wanted()),
        "; a server that goes on from it pauses these jobs until that is imported again\n");
  }
  if (!summary.jobs_anew().empty()) {
    absl::StrAppend(&text,
                    "in it without a checkpoint, as all are damaged or gone: ", NamesText("jobs", summary.jobs_anew()),
                    "; a server that goes on from it starts these jobs anew\n");
  }
  if (!summary.imports().empty()) {
    absl::StrAppend(&text, "imports that have not ended: ", NamesText("datasets", summary.imports()),
                    "; a server that goes on from it begins these anew, where it sees what they read\n");
  }
  return text;
}

ExitCode Backup(Session& session, const BackupFlags& flags) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::BackupRequest request;
  request.set_directory(flags.directory);
  request.set_with_datasets(flags.with_datasets);
  request.set_request_id(MakeUuid());
  v1::BackupResponse last;
  const Stopwatch watch;
  // A server that is back tells what came of it, or makes it anew.
  const FollowResult result = Follow<v1::BackupResponse>(
      session, session.options().timeout(),
      [&](grpc::ClientContext* context) { return stub->Backup(context, request); },
      [&](const v1::BackupResponse& response) {
        last = response;
        if (session.json()) {
          session.PrintJson(response);
        } else {
          const auto eta = EstimateRemaining(response.bytes_done(), response.bytes_total(), watch.Elapsed());
          session.terminal().Live(
              RenderBackupProgress(response.bytes_done(), response.bytes_total(), eta, session.terminal().style()));
        }
        return false;
      },
      /*ok_is_end=*/true);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (!session.json()) session.Print(BackupText(last.summary(), watch.Elapsed()));
  return ExitCode::kOk;
}

}  // namespace

void AddServerBackupCommand(CLI::App& server, Command& chosen) {
  CLI::App* backup = server.add_subcommand(
      "backup",
      "Copy the state of the running server on its machine: jobs, newest checkpoints, artifacts, logs, tokens");
  const auto flags = std::make_shared<BackupFlags>();
  backup
      ->add_option(
          "DIR", flags->directory,
          "A name below the server's --backup-root, or that path; must not be there, or be\nan empty directory")
      ->type_name("")
      ->required();
  backup->add_flag(
      "--with-datasets", flags->with_datasets,
      "Copy the datasets too. Without them, a server that goes on from the backup pauses the\njobs that have "
      "not ended until their datasets are imported again.");
  backup->callback([flags, &chosen] { chosen = [flags](Session& session) { return Backup(session, *flags); }; });
}

}  // namespace permafrost::client
