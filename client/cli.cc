#include "client/cli.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/contexts.h"
#include "client/credentials.h"
#include "client/failure.h"

namespace permafrost::client {
namespace {

constexpr char kDescription[] = "Trains graph neural networks on a Permafrost server.";

// The help of an option lists the options that it excludes. CLI11 lists them in the order of their addresses. This
// formatter sorts them by name, so that the help is the same in each run.
class SortedExcludes final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    if (option->get_excludes().size() < 2) return text;
    std::vector<std::string> names;
    for (const CLI::Option* other : option->get_excludes()) names.push_back(other->get_name());
    std::ranges::sort(names);
    text.resize(text.size() - absl::StrJoin(names, " ").size());
    return absl::StrCat(text, absl::StrJoin(names, " "));
  }
};

// Returns whether the command line asks for JSON. Also works for a command line that CLI11 cannot parse.
bool AsksForJson(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--output=json") return true;
    if (argument == "--output" && i + 1 < argc && std::string_view(argv[i + 1]) == "json") return true;
  }
  return false;
}

// Returns the command as far as it was understood, such as "permafrost job submit".
std::string CommandName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* part : app.get_subcommands()) return absl::StrCat(name, " ", CommandName(*part));
  return name;
}

// Returns the deepest subcommand that was understood.
const CLI::App& LastCommand(const CLI::App& app) {
  const std::vector<CLI::App*> parts = app.get_subcommands();
  return parts.empty() ? app : LastCommand(*parts.back());
}

// Finds an option of the command or of a command above it (a global option). Returns null if there is none.
const CLI::Option* FindOption(const CLI::App* app, const std::string& name) {
  for (; app != nullptr; app = app->get_parent()) {
    if (const CLI::Option* option = app->get_option_no_throw(name); option != nullptr) return option;
  }
  return nullptr;
}

// Returns a text about the values that the option accepts, or an empty text if the option's type does not tell.
std::string AcceptedValues(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "true, false";
  std::string type = option.get_type_name();
  for (const char* whole : {"N", "STEP", "LENGTH", "BYTES"}) {
    if (type == whole) return "a whole number";
  }
  for (const char* number : {"X", "SECONDS"}) {
    if (type == number) return "a number";
  }
  if (type == "ROW,...") return "whole numbers with commas between them";
  return type;
}

// Returns CLI11's message about a value of the wrong type, and adds the accepted values to it.
std::string ConversionText(const CLI::App& app, const std::string& what) {
  constexpr std::string_view kBegin = "Could not convert: ", kMiddle = " = ";
  const size_t middle = what.find(kMiddle);
  if (!what.starts_with(kBegin) || middle == std::string::npos) return what;
  const std::string name = what.substr(kBegin.size(), middle - kBegin.size());
  const CLI::Option* option = FindOption(&LastCommand(app), name);
  const std::string accepted = option == nullptr ? "" : AcceptedValues(*option);
  if (accepted.empty()) return what;
  return absl::StrCat(name, ": '", what.substr(middle + kMiddle.size()), "'; accepted: ", accepted);
}

bool IsFlagValue(const std::string& text) {
  try {
    CLI::detail::to_flag_value(text);
    return true;
  } catch (const std::logic_error&) {
    return false;
  }
}

// Makes an error that names the flag with a bad value. CLI11 converts some values by std::stoll, whose exceptions
// name no flag.
CLI::ConversionError BadFlagValue(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string::npos) continue;
    const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
    const CLI::Option* option = FindOption(&LastCommand(app), name);
    if (option == nullptr || option->get_items_expected_max() != 0 || IsFlagValue(value)) continue;
    return {name, std::vector<std::string>{value}};
  }
  return CLI::ConversionError("a flag has a value that is neither true nor false");
}

int ReportUsage(CLI::App& app, const CLI::ParseError& error, bool json) {
  // CLI11 would report a missing command rather than an unknown word, although the unknown word says more.
  const std::vector<std::string> strange = app.remaining(/*recurse=*/true);
  const std::string what =
      strange.empty() ? ConversionText(app, error.what()) : absl::StrCat("'", strange[0], "' is not known here");
  const Failure failure = UsageFailure(absl::StrCat(what, " (see ", CommandName(app), " --help)"));
  const std::string text = json ? RenderJson(failure) : RenderText(failure);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return static_cast<int>(failure.exit);
}

void AddGlobalOptions(CLI::App& app, GlobalOptions& options) {
  // Global options may also stand after the command.
  app.fallthrough();
  CLI::Option* server =
      app.add_option("--server", options.server,
                     "Address of the server, or unix:PATH (also: the environment variable PERMAFROST_SERVER)");
  server->type_name("HOST:PORT")->capture_default_str();
  app.add_option("--context", options.context, "A server by its name (see: permafrost context)")
      ->type_name("NAME")
      ->excludes(server);
  CredentialFiles& files = options.credential_files;
  app.add_option("--token-file", files.token_file,
                 "File that holds a token (also: PERMAFROST_TOKEN_FILE, and PERMAFROST_TOKEN for the token itself)")
      ->type_name("FILE");
  app.add_option("--ca-cert", files.ca_cert,
                 "Speak TLS; who signed the server's certificate, in PEM (also: PERMAFROST_CA_CERT)")
      ->type_name("FILE");
  app.add_option("--client-cert", files.client_cert,
                 "Speak TLS; the client's own certificate, in PEM (also: PERMAFROST_CLIENT_CERT)")
      ->type_name("FILE");
  app.add_option("--client-key", files.client_key, "Its key, in PEM (also: PERMAFROST_CLIENT_KEY)")->type_name("FILE");
  app.add_flag("--tls", files.tls,
               "Speak TLS with a server that a public authority vouches for (also: PERMAFROST_TLS)");
  app.add_option("--output", options.output, "table, or json: protobuf's JSON mapping, one object a line")
      ->check(OneOf({"table", "json"}))
      ->type_name("table|json")
      ->capture_default_str();
  app.add_flag("--no-color", options.no_color, "No colours (also: the environment variable NO_COLOR)");
  app.add_option("--timeout", options.timeout_seconds, "Time for a connection and for each answer; streams have none")
      ->check(CLI::Range(0.001, 86400.0).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.set_version_flag("--version", "permafrost " PERMAFROST_VERSION, "Print the version");
}

// Finds the server to talk to and its credentials. On failure it returns false, and `why` has the reason.
bool FindServer(const CLI::App& app, GlobalOptions& options, std::string& why) {
  const char* environment = std::getenv("PERMAFROST_SERVER");
  ServerWish wish{.server = "", .context = "", .environment = environment == nullptr ? "" : environment};
  const bool named = app.count("--server") > 0;
  absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath());
  const bool contexts_matter = !options.context.empty() || (!named && wish.environment.empty());
  if (!contexts.ok() && contexts_matter) {
    why = std::string(contexts.status().message());
    return false;
  }
  if (!contexts.ok()) contexts = Contexts();
  const absl::StatusOr<std::string> implied = ResolveServer(wish, *contexts, kDefaultServer);
  options.implied_server = implied.ok() ? *implied : "";
  if (named) wish.server = options.server;
  wish.context = options.context;
  const absl::StatusOr<std::string> server = ResolveServer(wish, *contexts, kDefaultServer);
  if (!server.ok()) {
    why = std::string(server.status().message());
    return false;
  }
  options.server = *server;
  absl::StatusOr<Credentials> credentials =
      ReadCredentials(options.credential_files, ResolveCredentials(wish, *contexts), options.server);
  if (!credentials.ok()) {
    why = std::string(credentials.status().message());
    return false;
  }
  options.credentials = *std::move(credentials);
  return true;
}

}  // namespace

int Main(int argc, char** argv) {
  // gRPC prints long texts about a bad certificate, while this program prints one line. Users who want gRPC's text
  // can set GRPC_VERBOSITY themselves.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  CLI::App app(kDescription, "permafrost");
  app.formatter(std::make_shared<SortedExcludes>());  // set before the commands are added, because they inherit it
  app.footer(kExitCodeHelp);
  app.require_subcommand(1);
  GlobalOptions options;
  Command chosen;
  AddGlobalOptions(app, options);
  AddDatasetCommands(app, chosen);
  AddJobCommands(app, chosen);
  AddCacheCommands(app, chosen);
  AddUploadCommands(app, chosen);
  AddProgramCommands(app, chosen);
  AddServerCommands(app, chosen);
  AddQueueCommand(app, chosen);
  AddContextCommands(app, chosen);
  AddCompletionCommands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error, AsksForJson(argc, argv));
  } catch (const std::logic_error&) {
    return ReportUsage(app, BadFlagValue(app, argc, argv), AsksForJson(argc, argv));
  }
  std::string no_server;
  const bool needs_server = !app.got_subcommand("context") && !app.got_subcommand("completion");
  const bool found = !needs_server || FindServer(app, options, no_server);
  Session session(options);
  if (!found) return static_cast<int>(session.Fail(UsageFailure(no_server)));
  const ExitCode code = chosen(session);
  if (!session.terminal().Flush()) {
    return static_cast<int>(
        session.Fail(LocalFileFailure(absl::StrCat("standard output: cannot write: ", std::strerror(errno)))));
  }
  return static_cast<int>(code);
}

}  // namespace permafrost::client
