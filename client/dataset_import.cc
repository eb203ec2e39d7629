#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/dataset_view.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_create.h"
#include "client/progress.h"
#include "client/spec_rows.h"
#include "data/source/import_options.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

struct ImportFlags {
  std::string name;
  std::string path;    // empty with an upload: all of it
  std::string upload;  // empty: the server sees the path
  bool validate_only = false;
  v1::ImportOptions options;
  std::optional<std::string> format, inverse_edges, node_ids, header, node_features, feature_type, order, delimiter,
      comment, quote, tu_features;
  std::vector<std::string> columns;
  uint64_t memory_bytes = 0;
  bool watch = true;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// The names that a shell lets pass unhurt, or the character itself.
std::string CharacterOf(const std::string& text) {
  if (text == "tab") return "\t";
  if (text == "space") return " ";
  if (text == "none") return "";
  return text;
}

v1::ImportOptions OptionsOf(const ImportFlags& flags) {
  v1::ImportOptions options = flags.options;
  if (flags.format)
    options.set_format(EnumOf<v1::ImportOptions::Format>(*v1::ImportOptions::Format_descriptor(), *flags.format));
  if (flags.inverse_edges) {
    options.set_inverse_edges(
        EnumOf<v1::ImportOptions::InverseEdges>(*v1::ImportOptions::InverseEdges_descriptor(), *flags.inverse_edges));
    // Older servers know this name for it alone.
    if (options.inverse_edges() == v1::ImportOptions::INVERSE_EDGES_KEEP) options.set_no_inverse_edges(true);
  }
  if (flags.node_features) {
    options.set_node_features(
        EnumOf<v1::ImportOptions::NodeFeatures>(*v1::ImportOptions::NodeFeatures_descriptor(), *flags.node_features));
  }
  if (flags.feature_type) {
    options.set_feature_type(
        EnumOf<v1::ImportOptions::FeatureType>(*v1::ImportOptions::FeatureType_descriptor(), *flags.feature_type));
  }
  if (flags.order)
    options.set_order(EnumOf<v1::ImportOptions::Order>(*v1::ImportOptions::Order_descriptor(), *flags.order));
  options.set_memory_bytes(static_cast<int64_t>(flags.memory_bytes));
  if (flags.tu_features) {
    options.mutable_tu()->set_node_features(
        EnumOf<v1::TuOptions::NodeFeatures>(*v1::TuOptions::NodeFeatures_descriptor(), *flags.tu_features));
  }
  v1::EdgeListOptions& edge_list = *options.mutable_edge_list();
  if (flags.node_ids) {
    edge_list.set_node_ids(
        EnumOf<v1::EdgeListOptions::NodeIds>(*v1::EdgeListOptions::NodeIds_descriptor(), *flags.node_ids));
  }
  for (const std::string& column : flags.columns)
    edge_list.add_columns(EnumOf<v1::EdgeListOptions::Column>(*v1::EdgeListOptions::Column_descriptor(), column));
  if (flags.header) {
    edge_list.set_header(EnumOf<v1::EdgeListOptions::Header>(*v1::EdgeListOptions::Header_descriptor(), *flags.header));
  }
  if (flags.delimiter) edge_list.set_delimiter(CharacterOf(*flags.delimiter));
  if (flags.comment) edge_list.set_comment(CharacterOf(*flags.comment));
  if (flags.quote) edge_list.set_quote(CharacterOf(*flags.quote));
  return options;
}

// Draws the import until it ends. The last message is left in `last`.
FollowResult WatchImport(Session& session, v1::DatasetService::Stub& stub, const ImportFlags& flags,
                         v1::Dataset& last) {
  std::string told;  // the last error that was
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
  // In JSON the stream's last message said it already.
  if (!session.json()) {
    const ViewTime now = ViewTime::Now();
    session.Print(RenderDataset(dataset, now, session.terminal().style()));
  }
  return ExitCode::kOk;
}

using Flags = std::shared_ptr<ImportFlags>;

void AddSplitOptions(CLI::App& import, const Flags& flags) {
  v1::ImportOptions& options = flags->options;
  const data::ImportOptions defaults;
  // The flags are kept by the command's callback, and so outlive these.
  const auto set_split = [&options](const std::string& split) { options.set_split(split); };
  const auto set_seed = [&options](uint64_t seed) { options.set_split_seed(seed); };
  const auto set_train = [&options](double fraction) { options.set_train_fraction(fraction); };
  const auto set_valid = [&options](double fraction) { options.set_valid_fraction(fraction); };
  import
      .add_option_function<std::string>(
          "--split", set_split, "Which of split/* to read (default: the only one; a random split if there is none)")
      ->type_name("NAME");
  import
      .add_option_function<uint64_t>("--split-seed", set_seed,
                                     absl::StrCat("Seed of the random split (default ", defaults.split_seed, ")"))
      ->check(NotNegative())
      ->type_name("N");
  import
      .add_option_function<double>(
          "--train-fraction", set_train,
          absl::StrCat("Part of the random split that trains (default ", defaults.train_fraction, ")"))
      ->type_name("0..1");
  import
      .add_option_function<double>("--valid-fraction", set_valid,
                                   absl::StrCat("Part of the random split that validates (default ",
                                                defaults.valid_fraction, "); the rest is test"))
      ->type_name("0..1");
}

void AddEdgeListOptions(CLI::App& import, const Flags& flags) {
  const data::EdgeListOptions defaults;
  v1::ImportOptions& options = flags->options;
  AddEnumOption(
      import, "--node-ids", flags->node_ids, *v1::EdgeListOptions::NodeIds_descriptor(),
      absl::StrCat("Edge list: how cells name nodes (default ", NameOf(data::kNodeIdsNames, defaults.node_ids), ")"));
  import
      .add_option("--columns", flags->columns,
                  "Edge list: all columns in their order: source, target, weight, timestamp, ignore; without source "
                  "and target those after them (default: from the header; else source, target and, if there is a "
                  "third, a weight)")
      ->check(OneOf(EnumShortNames(*v1::EdgeListOptions::Column_descriptor())))
      ->delimiter(',')
      ->type_name("COLUMN,...");
  AddEnumOption(import, "--header", flags->header, *v1::EdgeListOptions::Header_descriptor(),
                absl::StrCat("Edge list: whether the first line is a header (default ",
                             NameOf(data::kHeaderNames, defaults.header), ")"));
  import.add_option("--delimiter", flags->delimiter, "Edge list: between cells (default: found from the first line)")
      ->type_name("CHAR|tab|space");
  import
      .add_option(
          "--comment", flags->comment,
          absl::StrCat("Edge list: begins lines to be passed over (default ", std::string(1, defaults.comment), ")"))
      ->type_name("CHAR|none");
  import
      .add_option("--quote", flags->quote,
                  absl::StrCat("Edge list: around cells that hold the delimiter (default ",
                               std::string(1, defaults.quote), "; none: quotes are part of the text)"))
      ->type_name("CHAR|none");
  const auto set_nodes = [&options](int64_t nodes) { options.mutable_edge_list()->set_num_nodes(nodes); };
  import.add_option_function<int64_t>("--num-nodes", set_nodes, "Edge list of rows: at least so many nodes")
      ->type_name("N");
}

void AddTuOptions(CLI::App& import, const Flags& flags) {
  const data::TuOptions defaults;
  v1::ImportOptions& options = flags->options;
  AddEnumOption(
      import, "--tu-features", flags->tu_features, *v1::TuOptions::NodeFeatures_descriptor(),
      absl::StrCat("TUDataset: node features (default ", NameOf(data::kTuNodeFeaturesNames, defaults.node_features),
                   ": attributes and labels, whichever there are, else degrees)"));
  const auto one_hot = [&options] { options.mutable_tu()->set_one_hot(true); };
  const auto set_degree = [&options](int64_t degree) { options.mutable_tu()->set_max_degree(degree); };
  import.add_flag_callback("--one-hot", one_hot,
                           "TUDataset: labels and degrees as one-hot columns instead of categories to be embedded");
  import
      .add_option_function<int64_t>(
          "--max-degree", set_degree,
          absl::StrCat("TUDataset: larger degrees count as this one (default ", defaults.max_degree, ")"))
      ->type_name("N");
}

}  // namespace

void AddDatasetImport(CLI::App& dataset, Command& chosen) {
  const data::ImportOptions defaults;
  CLI::App* command = dataset.add_subcommand("import", "Import many small graphs or one large graph");
  const auto flags = std::make_shared<ImportFlags>();
  v1::ImportOptions& options = flags->options;
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
  AddEnumOption(*command, "--format", flags->format, *v1::ImportOptions::Format_descriptor(),
                absl::StrCat("What it is (default ", NameOf(data::kImportFormatNames, defaults.format),
                             "; auto: from what is there)"));
  AddSplitOptions(*command, flags);
  const auto no_inverse = [&options] { options.set_no_inverse_edges(true); };
  const auto coalesce = [&options] { options.set_coalesce(true); };
  const auto no_out_edges = [&options] { options.set_no_out_edges(true); };
  AddEnumOption(
      *command, "--inverse-edges", flags->inverse_edges, *v1::ImportOptions::InverseEdges_descriptor(),
      absl::StrCat("Whether each edge is stored with its inverse (default ",
                   NameOf(data::kInverseEdgesNames, defaults.inverse_edges),
                   ": unless the source lists both directions of every edge; a TUDataset's stay as they are)"));
  command->add_flag_callback("--no-inverse-edges,--directed", no_inverse, "The same as --inverse-edges keep");
  command->add_flag_callback(
      "--coalesce", coalesce,
      "Large graph, TUDataset: keep one of several edges with equal ends, of a large graph with their "
      "weights added");
  command->add_flag_callback("--no-out-edges", no_out_edges,
                             "Large directed graph: keep edges by target only; smaller, but without random walks");
  AddEnumOption(*command, "--node-features", flags->node_features, *v1::ImportOptions::NodeFeatures_descriptor(),
                absl::StrCat("Large graph in OGB's layout: which file of node features to read (default ",
                             NameOf(data::kNodeFeatureChoiceNames, defaults.node_features), ")"));
  AddEnumOption(*command, "--feature-type", flags->feature_type, *v1::ImportOptions::FeatureType_descriptor(),
                absl::StrCat("Large graph: what dense node features are stored as; int8 with a scale for each column "
                             "(default ",
                             NameOf(data::kFeatureTypeNames, defaults.feature_type), ")"));
  AddEnumOption(*command, "--order", flags->order, *v1::ImportOptions::Order_descriptor(),
                absl::StrCat("Large graph: number nodes so that what is drawn together lies together; the source's ids "
                             "are kept (default ",
                             NameOf(data::kNodeOrderNames, defaults.order), ")"));
  AddEdgeListOptions(*command, flags);
  AddTuOptions(*command, flags);
  command
      ->add_option("--memory", flags->memory_bytes,
                   "Large graph: memory for sorting, as 512MiB (default: a quarter of the machine's)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""))
      ->type_name("SIZE");
  command->add_flag("--watch,!--no-watch", flags->watch, "Show progress until the import ends (default)");
  AddReconnectOption(*command, flags->reconnect_seconds);
  command->callback([flags, path, &chosen] {
    if (path->empty() && flags->upload.empty()) throw CLI::RequiredError("PATH, or --upload");
    chosen = [flags](Session& session) { return Import(session, *flags); };
  });
}

}  // namespace permafrost::client
