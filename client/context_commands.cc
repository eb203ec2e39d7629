// `permafrost context`. It talks to no server.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/contexts.h"
#include "client/format.h"
#include "client/style.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

void PrintContexts(Session& session, const Contexts& contexts) {
  if (session.json()) {
    nlohmann::ordered_json out{{"current", contexts.current}, {"contexts", nlohmann::json::object()}};
    for (const auto& [name, server] : contexts.servers) out["contexts"][name] = server;
    session.Print(absl::StrCat(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n"));
    return;
  }
  if (contexts.servers.empty()) {
    session.Print("no contexts; make one with: permafrost context set NAME HOST:PORT\n");
    return;
  }
  std::vector<std::vector<Cell>> rows;
  rows.reserve(contexts.servers.size());
  for (const auto& [name, server] : contexts.servers) {
    rows.push_back({name == contexts.current ? "*" : "", name, OneLine(server)});
  }
  session.Print(RenderTable({{"CURRENT"}, {"CONTEXT"}, {"SERVER"}}, rows, session.terminal().style()));
}

// `change` changes the contexts and returns an empty text, or returns the reason why it refuses.
ExitCode ChangeContexts(Session& session, const std::function<std::string(Contexts&)>& change) {
  const std::string path = ContextsPath();
  absl::StatusOr<Contexts> contexts = ReadContexts(path);
  if (!contexts.ok()) return session.Fail(FileFailure(contexts.status()));
  if (const std::string refusal = change(*contexts); !refusal.empty()) return session.Fail(UsageFailure(refusal));
  if (const absl::Status written = WriteContexts(path, *contexts); !written.ok()) {
    return session.Fail(FileFailure(written));
  }
  PrintContexts(session, *contexts);
  return ExitCode::kOk;
}

ExitCode ListContexts(Session& session) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath());
  if (!contexts.ok()) return session.Fail(FileFailure(contexts.status()));
  PrintContexts(session, *contexts);
  return ExitCode::kOk;
}

std::string UnknownContext(const std::string& name) { return absl::StrCat("'", OneLine(name), "' is no context"); }

struct ContextFlags {
  std::string name, server;
  bool use = false;
  CredentialFiles files;  // from the global flags
};

std::string SetContext(const ContextFlags& flags, Contexts& contexts) {
  if (!IsContextName(flags.name)) {
    return absl::StrCat("'", OneLine(flags.name),
                        "' cannot be a context's name; accepted: 1..63 letters, digits and ._-, the first no ._-");
  }
  const size_t colon = flags.server.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == flags.server.size()) {
    return absl::StrCat("'", OneLine(flags.server), "' is no address; accepted: HOST:PORT, unix:PATH");
  }
  contexts.servers[flags.name] = flags.server;
  contexts.credentials.erase(flags.name);
  if (flags.files != CredentialFiles()) contexts.credentials[flags.name] = flags.files;
  if (flags.use || contexts.servers.size() == 1) contexts.current = flags.name;
  return "";
}

std::string UseContext(const ContextFlags& flags, Contexts& contexts) {
  if (!contexts.servers.contains(flags.name)) return UnknownContext(flags.name);
  contexts.current = flags.name;
  return "";
}

std::string RemoveContext(const ContextFlags& flags, Contexts& contexts) {
  if (contexts.servers.erase(flags.name) == 0) return UnknownContext(flags.name);
  contexts.credentials.erase(flags.name);
  if (contexts.current == flags.name) contexts.current.clear();
  return "";
}

// Makes the paths absolute, because the context is also used from other directories.
CredentialFiles WholePaths(CredentialFiles files) {
  for (std::string* path : {&files.token_file, &files.ca_cert, &files.client_cert, &files.client_key}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  return files;
}

using ContextChange = std::string (*)(const ContextFlags&, Contexts&);

CLI::App* AddChange(CLI::App& group, const char* name, const char* help, ContextChange change,
                    const std::shared_ptr<ContextFlags>& flags, Command& chosen) {
  CLI::App* command = group.add_subcommand(name, help);
  command->add_option("NAME", flags->name, "The context")->type_name("")->required();
  command->callback([flags, change, &chosen] {
    chosen = [flags, change](Session& session) {
      flags->files = WholePaths(session.options().credential_files);
      return ChangeContexts(session, [&](Contexts& contexts) { return change(*flags, contexts); });
    };
  });
  return command;
}

}  // namespace

void AddContextCommands(CLI::App& app, Command& chosen) {
  CLI::App* group = app.add_subcommand("context", "Named servers; the current one is meant where nothing else says")
                        ->require_subcommand(1);
  group->add_subcommand("list", "The contexts; * is the current one")->callback([&chosen] { chosen = ListContexts; });
  const auto flags = std::make_shared<ContextFlags>();
  CLI::App* set = AddChange(
      *group, "set",
      "Name a server, or give a name another one, with the --token-file and certificates that are given here; "
      "the first context is the current one",
      SetContext, flags, chosen);
  set->add_option("HOST:PORT", flags->server, "The server's address")->type_name("")->required();
  set->add_flag("--use", flags->use, "Make it the current one");
  AddChange(*group, "use", "Make a context the current one", UseContext, flags, chosen);
  AddChange(*group, "remove", "Forget a context", RemoveContext, flags, chosen);
}

}  // namespace permafrost::client
