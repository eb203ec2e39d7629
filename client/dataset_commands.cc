#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/dataset_view.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

using Stub = v1::DatasetService::Stub;

ViewTime Now() { return {absl::Now(), absl::LocalTimeZone()}; }

std::string ResourceName(const std::string& id) { return WithCollection("datasets", id); }

void Show(Session& session, const v1::Dataset& dataset) {
  if (session.json()) {
    session.PrintJson(dataset);
  } else {
    session.Print(RenderDataset(dataset, Now(), session.terminal().style()));
  }
}

struct ImportFlags {
  std::string name;
  std::string path;
  v1::ImportOptions options;
  bool watch = true;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// Draws the import until it ends. The last message is left in `last`.
FollowResult WatchImport(Session& session, Stub& stub, const ImportFlags& flags, v1::Dataset& last) {
  v1::WatchDatasetRequest request;
  request.set_name(ResourceName(flags.name));
  const absl::Time begin = absl::Now();
  return Follow<v1::Dataset>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub.WatchDataset(context, request); },
      [&](const v1::Dataset& dataset) {
        last = dataset;
        if (session.json()) session.PrintJson(dataset);
        const v1::ImportProgress& progress = dataset.import_progress();
        const ImportSnapshot snapshot{
            progress.current_file(), progress.bytes_read(), progress.bytes_total(),
            EstimateRemaining(progress.bytes_read(), progress.bytes_total(), absl::Now() - begin)};
        if (!session.json()) session.terminal().Live(RenderImportProgress(snapshot, session.terminal().style()));
        return dataset.state() == v1::Dataset::STATE_READY || dataset.state() == v1::Dataset::STATE_FAILED;
      },
      /*ok_is_end=*/false);
}

ExitCode Import(Session& session, const ImportFlags& flags) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(flags.path, error);
  if (error) return session.Fail(LocalFileFailure(absl::StrCat(flags.path, ": ", error.message())));
  v1::ImportDatasetRequest request;
  request.set_dataset_id(flags.name);
  *request.mutable_options() = flags.options;
  request.mutable_options()->set_source_path(path.lexically_normal().string());
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::Dataset dataset;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->ImportDataset(context, request, &dataset); });
  if (!status.ok()) return session.Fail(status);
  const std::string come_back = session.CommandLine(absl::StrCat("dataset show ", flags.name));
  if (!flags.watch) {
    if (session.json()) {
      session.PrintJson(dataset);
    } else {
      session.Print(absl::StrCat("the import of ", flags.name, " has begun; see it with: ", come_back, "\n"));
    }
    return ExitCode::kOk;
  }
  const FollowResult result = WatchImport(session, *stub, flags, dataset);
  if (result.end == FollowEnd::kInterrupted)
    return session.Interrupted(absl::StrCat("the import goes on; see it with: ", come_back));
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  session.terminal().ClearLive();
  if (dataset.state() == v1::Dataset::STATE_FAILED)
    return session.Fail(EndedBadlyFailure(absl::StrCat("the import of ", flags.name, " failed: ", dataset.error())));
  // In JSON the stream's last message said it already.
  if (!session.json()) Show(session, dataset);
  return ExitCode::kOk;
}

ExitCode List(Session& session) {
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
    session.Print(RenderDatasetList({all.datasets().begin(), all.datasets().end()}, Now(), session.terminal().style()));
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

ExitCode Delete(Session& session, const std::string& name) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::DeleteDatasetRequest request;
  request.set_name(ResourceName(name));
  google::protobuf::Empty empty;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->DeleteDataset(context, request, &empty); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(empty);
  } else {
    session.Print(absl::StrCat("deleted dataset ", OneLine(StripCollection("datasets", name)), "\n"));
  }
  return ExitCode::kOk;
}

void AddImport(CLI::App& dataset, Command& chosen) {
  CLI::App* import = dataset.add_subcommand(
      "import", "Import graphs in OGB's graph-property CSV layout (raw/*.csv or *.csv.gz, split/NAME/*)");
  const auto flags = std::make_shared<ImportFlags>();
  import->add_option("NAME", flags->name, "Name of the dataset: 1..63 characters of [a-z0-9-], a letter first")
      ->type_name("")
      ->required();
  import->add_option("PATH", flags->path, "Directory to import, on the server's machine")->type_name("")->required();
  import
      ->add_option_function<std::string>(
          "--split", [flags](const std::string& split) { flags->options.set_split(split);
},
          "Which of split/* to read (default: the only one; a random split if there is none)")
      ->type_name("NAME");
  import
      ->add_option_function<uint64_t>(
          "--split-seed", [flags](uint64_t seed) { flags->options.set_split_seed(seed);
  }  // namespace
,
          "Seed of the random split (default 0)")
      ->check(NotNegative())
      ->type_name("N");
  import
      ->add_option_function<double>(
          "--train-fraction", [flags](double fraction) { flags->options.set_train_fraction(fraction);
  }  // namespace permafrost::client
,
          "Part of the random split that trains (default 0.8)")
      ->type_name("0..1");
  import
      ->add_option_function<double>(
          "--valid-fraction", [flags](double fraction) { flags->options.set_valid_fraction(fraction);
  },
          "Part of the random split that validates (default 0.1); the rest is test")
      ->type_name("0..1");
  import->add_flag_callback(
      "--no-inverse-edges", [flags] { flags->options.set_no_inverse_edges(true);
  },
      "Keep each edge as it stands instead of storing it with its inverse");
  import->add_flag("--watch,!--no-watch", flags->watch, "Show progress until the import ends (default)");
  AddReconnectOption(*import, flags->reconnect_seconds);
  import->callback([flags, &chosen] { chosen = [flags](Session& session) { return Import(session, *flags);
  }
  ;
  });
  }

  }  // namespace

  void AddDatasetCommands(CLI::App& app, Command& chosen) {
    CLI::App* dataset = app.add_subcommand("dataset", "Graph datasets")->require_subcommand(1);
    AddImport(*dataset, chosen);
    dataset->add_subcommand("list", "All datasets")->callback([&chosen] { chosen = List; });
    const auto name = std::make_shared<std::string>();
    CLI::App* show = dataset->add_subcommand("show", "One dataset: features, splits, sizes");
    show->add_option("NAME", *name, "Name of the dataset")->type_name("")->required();
    show->callback([name, &chosen] { chosen = [name](Session& session) { return ShowOne(session, *name); }; });
    CLI::App* remove = dataset->add_subcommand("delete", "Delete a dataset; an import under way is cancelled first");
    remove->add_option("NAME", *name, "Name of the dataset")->type_name("")->required();
    remove->callback([name, &chosen] { chosen = [name](Session& session) { return Delete(session, *name); }; });
  }

  }  // namespace permafrost::client
