#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/dataset_view.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "client/requests.h"
#include "client/spec_rows.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

struct ImportFlags {
  std::string name;
  std::string path;    // empty: imports the whole upload
  std::string upload;  // empty: the server itself sees the path
  bool validate_only = false;
  SpecFlags options{ImportRows()};
  bool watch = true;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

v1::ImportOptions OptionsOf(const ImportFlags& flags) {
  v1::ImportOptions options;
  for (const SpecSetting& setting : flags.options.Given()) setting.Apply(options);
  // Older servers know only `no_inverse_edges` for KEEP.
  if (options.inverse_edges() == v1::ImportOptions::INVERSE_EDGES_KEEP) options.set_no_inverse_edges(true);
  return options;
}

// Draws the import's progress until it ends. `last` receives the last message.
FollowResult WatchImport(Session& session, v1::DatasetService::Stub& stub, const ImportFlags& flags,
                         v1::Dataset& last) {
  std::string told;  // the last error that was printed
  v1::WatchDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  const Stopwatch watch;
  return Follow<v1::Dataset>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub.WatchDataset(context, request); },
      [&](const v1::Dataset& dataset) {
        last = dataset;
        if (session.json()) session.PrintJson(dataset);
        if (!session.json() && !dataset.last_error().empty() && dataset.last_error() != told) {
          told = dataset.last_error();
          session.terminal().Note(
              absl::StrCat("permafrost: the import of ", flags.name, " waits and is tried again: ", OneLine(told)));
        }
        const v1::ImportProgress& progress = dataset.import_progress();
        const ImportSnapshot snapshot{
            progress.current_file(), progress.bytes_read(), progress.bytes_total(),
            EstimateRemaining(progress.bytes_read(), progress.bytes_total(), watch.Elapsed())};
        if (!session.json()) session.terminal().Live(RenderImportProgress(snapshot, session.terminal().style()));
        return dataset.state() == v1::Dataset::STATE_READY || dataset.state() == v1::Dataset::STATE_FAILED;
      },
      /*ok_is_end=*/false);
}

ExitCode Import(Session& session, const ImportFlags& flags) {
  v1::ImportDatasetRequest request;
  request.set_dataset_id(flags.name);
  *request.mutable_options() = OptionsOf(flags);
  request.set_validate_only(flags.validate_only);
  if (flags.upload.empty()) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(flags.path, error);
    if (error) return session.Fail(LocalFileFailure(absl::StrCat(flags.path, ": ", error.message())));
    request.mutable_options()->set_source_path(path.lexically_normal().string());
  } else {
    request.set_upload(WithCollection("uploads", flags.upload));
    request.mutable_options()->set_source_path(flags.path);
  }
  request.set_request_id(MakeUuid());
  if (const grpc::Status size = CheckRequestSize(request); !size.ok()) return session.Fail(size);
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::Dataset dataset;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->ImportDataset(context, request, &dataset); });
  if (!status.ok()) return session.Fail(status);
  if (flags.validate_only) {
    if (session.json()) {
      session.PrintJson(dataset);
    } else {
      session.Print(absl::StrCat("the import of ", flags.name, " would be accepted; nothing was imported\n"));
    }
    return ExitCode::kOk;
  }
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
  // In JSON mode, the last message of the stream has been printed already.
  if (!session.json()) {
    const ViewTime now = ViewTime::Now();
    session.Print(RenderDataset(dataset, now, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDatasetImport(CLI::App& dataset, Command& chosen) {
  CLI::App* command = dataset.add_subcommand("import", "Import many small graphs or one large graph");
  const auto flags = std::make_shared<ImportFlags>();
  command->add_option("NAME", flags->name, "Name of the dataset: 1..63 characters of [a-z0-9-], a letter first")
      ->type_name("")
      ->required();
  CLI::Option* path =
      command->add_option("PATH", flags->path, "File or directory to import, on the server's machine")->type_name("");
  command
      ->add_option(
          "--upload", flags->upload,
          "Import the files of this upload (`permafrost upload send`); PATH is then a path in it (default: all "
          "of it)")
      ->type_name("ID");
  command->add_flag(
      "--validate-only", flags->validate_only,
      "Say whether the import would be accepted, and import nothing: the source is found, no row is read");
  flags->options.AddTo(*command);
  command->add_flag("--watch,!--no-watch", flags->watch, "Show progress until the import ends (default)");
  AddReconnectOption(*command, flags->reconnect_seconds);
  command->callback([flags, path, &chosen] {
    if (path->empty() && flags->upload.empty()) throw CLI::RequiredError("PATH, or --upload");
    chosen = [flags](Session& session) { return Import(session, *flags); };
  });
}

}  // namespace permafrost::client
