#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/received_file.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

struct ExportFlags {
  std::string id;
  std::string to;
  std::string artifact = "best-weights";
};

ExitCode Export(Session& session, const ExportFlags& flags) {
  v1::ExportJobRequest request;
  request.set_name(WithCollection("jobs", flags.id));
  request.set_artifact(static_cast<v1::ExportJobRequest::Artifact>(
      ParseEnum(*v1::ExportJobRequest::Artifact_descriptor(), flags.artifact).value_or(0)));
  const bool is_table = request.artifact() == v1::ExportJobRequest::ARTIFACT_TEST_PREDICTIONS;
  const std::string path = !flags.to.empty() ? flags.to
                                             : absl::StrCat(std::string(StripCollection("jobs", flags.id)),
                                                            is_table ? ".csv" : ".safetensors");
  auto target = OutputTarget::Open(path);
  if (!target.ok()) return session.Fail(FileFailure(target.status()));
  if (!is_table && target->is_terminal()) {
    return session.Fail(UsageFailure(
        absl::StrCat("--to ", OneLine(path), " is a terminal, and weights are no text; accepted: a file, or a pipe")));
  }
  // The whole of it is kept from an abrupt end, so that Ctrl-C leaves no partial file.
  Interrupt::Scope keep_running(session.interrupt(), nullptr);
  auto file = ReceivedFile::Create(*std::move(target));
  if (!file.ok()) return session.Fail(FileFailure(file.status()));
  const auto stub = v1::JobService::NewStub(session.channel());
  absl::Status written;
  int64_t total_bytes = 0;
  std::string xxh3;
  // A server that goes away half-way is not waited for: the file may be another by then.
  const FollowResult result = Follow<v1::ExportJobResponse>(
      session, absl::ZeroDuration(), [&](grpc::ClientContext* context) { return stub->ExportJob(context, request); },
      [&](const v1::ExportJobResponse& piece) {
        if (written.ok()) written = file->Append(piece.data());
        total_bytes = piece.total_bytes();
        xxh3 = piece.xxh3();
        return false;
      },
      /*ok_is_end=*/true);
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("interrupted; nothing was written");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (written.ok()) written = file->Commit(total_bytes, xxh3);
  if (!written.ok()) return session.Fail(FileFailure(written));
  const std::string& name = file->target().name();
  session.PrintBeside(
      file->target(),
      session.json()
          ? nlohmann::ordered_json{{"file", name}, {"totalBytes", absl::StrCat(total_bytes)}, {"xxh3", xxh3}}.dump(
                -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                "\n"
          : absl::StrCat("wrote ", file->target().is_stdout() ? "to " : "", OneLine(name), " (", BytesText(total_bytes),
                         ")\n"));
  return ExitCode::kOk;
}

}  // namespace

void AddJobExport(CLI::App& job, Command& chosen) {
  CLI::App* command = job.add_subcommand("export", "Fetch a file that a job made; it appears whole and verified");
  const auto flags = std::make_shared<ExportFlags>();
  command->add_option("ID", flags->id, "The job")->type_name("")->required();
  command
      ->add_option("--to", flags->to,
                   "Where to write it; -: standard output (default: ID.safetensors, or ID.csv for predictions)")
      ->type_name("FILE");
  command
      ->add_option("--artifact", flags->artifact,
                   "Weights of the best epoch or of the newest checkpoint (safetensors, named as the equal PyG "
                   "module's), or predictions on the test split (CSV)")
      ->check(OneOf(EnumShortNames(*v1::ExportJobRequest::Artifact_descriptor())))
      ->type_name("best-weights|last-weights|test-predictions")
      ->capture_default_str();
  command->callback([flags, &chosen] { chosen = [flags](Session& session) { return Export(session, *flags); }; });
}

}  // namespace permafrost::client
