#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/dataset_view.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "client/requests.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

std::string ResourceName(const std::string& id) { return WithCollection("datasets", id); }

void Show(Session& session, const v1::Dataset& dataset) {
  if (session.json()) {
    session.PrintJson(dataset);
  } else {
    session.Print(RenderDataset(dataset, ViewTime::Now(), session.terminal().style()));
  }
}

ExitCode ListDatasets(Session& session) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::ListDatasetsRequest request;
  v1::ListDatasetsResponse all;
  do {
    v1::ListDatasetsResponse page;
    const grpc::Status status =
        session.Unary([&](grpc::ClientContext* context) { return stub->ListDatasets(context, request, &page); });
    if (!status.ok()) return session.Fail(status);
    all.mutable_datasets()->MergeFrom(page.datasets());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.json()) {
    session.PrintJson(all);
  } else if (all.datasets().empty()) {
    session.Print(
        absl::StrCat("no datasets; import one with: ", session.CommandLine("dataset import NAME PATH"), "\n"));
  } else {
    session.Print(
        RenderDatasetList({all.datasets().begin(), all.datasets().end()}, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode ShowOne(Session& session, const std::string& name) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::GetDatasetRequest request;
  request.set_name(ResourceName(name));
  v1::Dataset dataset;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetDataset(context, request, &dataset); });
  if (!status.ok()) return session.Fail(status);
  Show(session, dataset);
  return ExitCode::kOk;
}

ExitCode DeleteDataset(Session& session, const std::string& name, const std::string& etag) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::DeleteDatasetRequest request;
  request.set_name(ResourceName(name));
  request.set_etag(etag);
  request.set_request_id(MakeUuid());
  google::protobuf::Empty empty;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->DeleteDataset(context, request, &empty); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(empty);
  } else {
    session.Print(absl::StrCat("deleted dataset ", OneLine(StripCollection("datasets", name)), "\n"));
  }
  return ExitCode::kOk;
}

using OnDataset = ExitCode (*)(Session&, const std::string&);

void AddForOneDataset(CLI::App& dataset, const char* name, const char* help, OnDataset run, Command& chosen) {
  CLI::App* command = dataset.add_subcommand(name, help);
  const auto id = std::make_shared<std::string>();
  command->add_option("NAME", *id, "Name of the dataset")->type_name("")->required();
  command->callback([id, run, &chosen] { chosen = [id, run](Session& session) { return run(session, *id); }; });
}

}  // namespace

void AddDatasetCommands(CLI::App& app, Command& chosen) {
  CLI::App* dataset = app.add_subcommand("dataset", "Graph datasets")->require_subcommand(1);
  AddDatasetImport(*dataset, chosen);
  dataset->add_subcommand("list", "All datasets")->callback([&chosen] { chosen = ListDatasets; });
  AddForOneDataset(*dataset, "show", "One dataset: features, splits, sizes", ShowOne, chosen);
  AddDatasetVerify(*dataset, chosen);
  AddDatasetSample(*dataset, chosen);
  AddDatasetPlan(*dataset, chosen);
  CLI::App* remove = dataset->add_subcommand("delete", "Delete a dataset; an import under way is cancelled first");
  const auto name = std::make_shared<std::string>(), etag = std::make_shared<std::string>();
  remove->add_option("NAME", *name, "Name of the dataset")->type_name("")->required();
  remove->add_option("--etag", *etag, "Delete only where this is its etag still, as JSON output tells it")
      ->type_name("ETAG");
  remove->callback([name, etag, &chosen] {
    chosen = [name, etag](Session& session) { return DeleteDataset(session, *name, *etag); };
  });
}

namespace {

struct VerifyFlags {
  std::string name;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Verify(Session& session, const VerifyFlags& flags) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::VerifyDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  v1::VerifyDatasetResponse last;
  Stopwatch watch;
  const FollowResult result = Follow<v1::VerifyDatasetResponse>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) {
        watch.Restart();
        return stub->VerifyDataset(context, request);
      },
      [&](const v1::VerifyDatasetResponse& progress) {
        last = progress;
        if (session.json()) {
          session.PrintJson(progress);
        } else {
          const auto eta = EstimateRemaining(progress.bytes_done(), progress.bytes_total(), watch.Elapsed());
          session.terminal().Live(
              RenderVerifyProgress(progress.bytes_done(), progress.bytes_total(), eta, session.terminal().style()));
        }
        // No message is the last one: only the OK at the end of the stream says that the dataset is intact.
        return false;
      },
      /*ok_is_end=*/true);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (!session.json()) {
    session.Print(absl::StrCat("dataset ", OneLine(StripCollection("datasets", flags.name)), " is whole: ",
                               BytesText(last.bytes_total()), " verified in ", DurationText(watch.Elapsed()), "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDatasetVerify(CLI::App& dataset, Command& chosen) {
  CLI::App* verify = dataset.add_subcommand("verify", "Read a whole dataset and check every checksum");
  const auto flags = std::make_shared<VerifyFlags>();
  verify->add_option("NAME", flags->name, "Name of the dataset")->type_name("")->required();
  AddReconnectOption(*verify, flags->reconnect_seconds);
  verify->callback([flags, &chosen] { chosen = [flags](Session& session) { return Verify(session, *flags); }; });
}

}  // namespace permafrost::client
