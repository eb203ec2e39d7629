// `permafrost job export` fetches a job's files. `job evaluate` and `job predict` run the job's weights once over
// rows of a dataset.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/message_fields.h"
#include "client/progress.h"
#include "client/received_file.h"
#include "client/style.h"
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
  // While this scope lives, Ctrl-C does not end the program at once, so that no partial file is left behind.
  Interrupt::Scope keep_running(session.interrupt(), nullptr);
  auto file = ReceivedFile::Create(*std::move(target));
  if (!file.ok()) return session.Fail(FileFailure(file.status()));
  const auto stub = v1::JobService::NewStub(session.channel());
  absl::Status written;
  int64_t total_bytes = 0;
  std::string xxh3;
  // If the server goes away during the export, the client does not wait for it, because the file may change
  // meanwhile.
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

namespace {

struct EvaluateFlags {
  std::string id, dataset;
  std::optional<std::string> rows, weights;
  std::optional<int64_t> checkpoint;
  std::vector<std::string> metrics;
  bool allow_unknown_categories = false;
  std::string to;  // for `job predict`
};

v1::EvaluateJobRequest RequestOf(const EvaluateFlags& flags, bool predictions) {
  v1::EvaluateJobRequest request;
  request.set_name(WithCollection("jobs", flags.id));
  if (!flags.dataset.empty()) request.set_dataset(WithCollection("datasets", flags.dataset));
  if (flags.rows) {
    request.set_rows(EnumOf<v1::EvaluateJobRequest::Rows>(*v1::EvaluateJobRequest::Rows_descriptor(), *flags.rows));
  }
  if (flags.weights) {
    request.set_weights(EnumOf<v1::InitFrom::Weights>(*v1::InitFrom::Weights_descriptor(), *flags.weights));
  }
  if (flags.checkpoint) request.set_checkpoint_step(*flags.checkpoint);
  for (const std::string& metric : flags.metrics) {
    request.add_metrics(EnumOf<v1::Metric>(*v1::Metric_descriptor(), metric));
  }
  request.set_predictions(predictions);
  request.set_allow_unknown_categories(flags.allow_unknown_categories);
  return request;
}

std::string RenderEvaluation(const v1::JobEvaluation& evaluation, const RenderStyle& style) {
  std::vector<Field> fields{
      {"dataset", OneLine(StripCollection("datasets", evaluation.dataset()))},
      {"rows", absl::StrCat(EnumShortName(*v1::EvaluateJobRequest::Rows_descriptor(), evaluation.rows()), ", ",
                            CountText(evaluation.num_rows()))},
      {"loss", MetricText(evaluation.loss())}};
  if (evaluation.unranked_links() > 0) {
    fields.push_back({"without a rank", absl::StrCat(CountText(evaluation.unranked_links()), " links, no negatives")});
  }
  fields.reserve(fields.size() + static_cast<size_t>(evaluation.metrics_size()));
  for (const v1::MetricValue& metric : evaluation.metrics()) {
    fields.push_back({MetricName(metric.metric()), MetricText(metric.value())});
  }
  for (const std::string& note : evaluation.notes()) fields.push_back({"unknown", OneLine(note)});
  return RenderFields(fields, style);
}

// `file` receives the predictions, unless it is null. If the server goes away, the client does not wait for it,
// because the pass would start from the beginning.
FollowResult RunEvaluation(Session& session, const v1::EvaluateJobRequest& request, ReceivedFile* file,
                           v1::JobEvaluation& evaluation, absl::Status& written) {
  const auto stub = v1::JobService::NewStub(session.channel());
  const Stopwatch watch;
  int64_t total_bytes = 0;
  std::string xxh3;
  FollowResult result = Follow<v1::EvaluateJobResponse>(
      session, absl::ZeroDuration(), [&](grpc::ClientContext* context) { return stub->EvaluateJob(context, request); },
      [&](const v1::EvaluateJobResponse& response) {
        if (response.has_result()) evaluation = response.result();
        if (!response.predictions().empty() && file != nullptr && written.ok()) {
          written = file->Append(response.predictions());
        }
        if (response.total_bytes() > 0) total_bytes = response.total_bytes();
        if (!response.xxh3().empty()) xxh3 = response.xxh3();
        if (!session.json() && response.total_bytes() == 0) {
          const auto eta = EstimateRemaining(response.rows_done(), response.rows_total(), watch.Elapsed());
          session.terminal().Live(
              RenderEvaluationProgress(response.rows_done(), response.rows_total(), eta, session.terminal().style()));
        }
        return false;
      },
      /*ok_is_end=*/true);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kDone && file != nullptr && written.ok()) written = file->Commit(total_bytes, xxh3);
  return result;
}

ExitCode EvaluateJob(Session& session, const EvaluateFlags& flags) {
  v1::JobEvaluation evaluation;
  absl::Status written;
  const FollowResult result = RunEvaluation(session, RequestOf(flags, false), nullptr, evaluation, written);
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (session.json()) {
    session.PrintJson(evaluation);
  } else {
    session.Print(RenderEvaluation(evaluation, session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode PredictWithJob(Session& session, const EvaluateFlags& flags) {
  const std::string path =
      flags.to.empty() ? absl::StrCat(std::string(StripCollection("jobs", flags.id)), "-predictions.csv") : flags.to;
  auto target = OutputTarget::Open(path);
  if (!target.ok()) return session.Fail(FileFailure(target.status()));
  // While this scope lives, Ctrl-C does not end the program at once, so that no partial file is left behind.
  Interrupt::Scope keep_running(session.interrupt(), nullptr);
  auto file = ReceivedFile::Create(*std::move(target));
  if (!file.ok()) return session.Fail(FileFailure(file.status()));
  v1::JobEvaluation evaluation;
  absl::Status written;
  const FollowResult result = RunEvaluation(session, RequestOf(flags, true), &*file, evaluation, written);
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("interrupted; nothing was written");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (!written.ok()) return session.Fail(FileFailure(written));
  const OutputTarget& to = file->target();
  session.PrintBeside(to, session.json()
                              ? ToJson(evaluation) + "\n"
                              : absl::StrCat(RenderEvaluation(evaluation, session.terminal().style()), "wrote ",
                                             to.is_stdout() ? "to " : "", OneLine(to.name()), "\n"));
  return ExitCode::kOk;
}

void AddPassOptions(CLI::App& command, EvaluateFlags& flags) {
  command.add_option("ID", flags.id, "The job whose weights they are, in whatever state")->type_name("")->required();
  command
      .add_option("--dataset", flags.dataset, "Another dataset, which the model can be given (default: the job's own)")
      ->type_name("NAME");
  AddEnumOption(command, "--rows", flags.rows, *v1::EvaluateJobRequest::Rows_descriptor(),
                "Graphs, nodes or links of a split, or all graphs or nodes (default: test; of another dataset, and of "
                "node2vec, all)");
  AddEnumOption(command, "--weights", flags.weights, *v1::InitFrom::Weights_descriptor(),
                "Of the best epoch or of the newest checkpoint (default: best)");
  command.add_option("--checkpoint", flags.checkpoint, "Those of the checkpoint of this step instead")
      ->type_name("STEP");
  command
      .add_option("--metrics", flags.metrics,
                  "What is reported, separated by commas (default: the job's); as job submit takes them")
      ->check(OneOf(EnumShortNames(*v1::Metric_descriptor())))
      ->delimiter(',')
      ->type_name("METRIC,...");
  command.add_flag("--allow-unknown-categories", flags.allow_unknown_categories,
                   "Let a category that the training's dataset has nowhere contribute nothing, rather than refuse it; "
                   "its columns and counts are told");
}

}  // namespace

void AddJobEvaluate(CLI::App& job, Command& chosen) {
  CLI::App* evaluate = job.add_subcommand("evaluate", "Loss and metrics of a job's weights on a split or a dataset");
  const auto flags = std::make_shared<EvaluateFlags>();
  AddPassOptions(*evaluate, *flags);
  evaluate->callback([flags, &chosen] { chosen = [flags](Session& session) { return EvaluateJob(session, *flags); }; });

  CLI::App* predict =
      job.add_subcommand("predict", "Predictions of a job's weights for a split or a dataset, as a CSV file");
  const auto where = std::make_shared<EvaluateFlags>();
  AddPassOptions(*predict, *where);
  predict->add_option("--to", where->to, "Where to write them; -: standard output (default: ID-predictions.csv)")
      ->type_name("FILE");
  predict->callback(
      [where, &chosen] { chosen = [where](Session& session) { return PredictWithJob(session, *where); }; });
}

}  // namespace permafrost::client
