#include "client/contexts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, std::string CredentialFiles::*> kFileKeys[] = {
    {"token_file", &CredentialFiles::token_file},
    {"ca_cert", &CredentialFiles::ca_cert},
    {"client_cert", &CredentialFiles::client_cert},
    {"client_key", &CredentialFiles::client_key},
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns an empty object if there is no file.
absl::StatusOr<json> ReadConfig(const std::string& path) {
  if (path.empty()) return json::object();
  absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return json::object();
  PF_RETURN_IF_ERROR(text.status());
  json config = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": is no JSON object"));
  return config;
}

}  // namespace

std::string KnownContexts(const Contexts& contexts) {
  if (contexts.servers.empty()) return "no context is set; make one with: permafrost context set NAME HOST:PORT";
  return absl::StrCat("known: ", absl::StrJoin(contexts.servers, ", ", [](std::string* out, const auto& context) {
                        absl::StrAppend(out, context.first);
                      }));
}

std::string ContextsPath() {
  std::filesystem::path folder = Variable("XDG_CONFIG_HOME");
  if (folder.empty()) {
    const std::filesystem::path home = Variable("HOME");
    if (home.empty()) return "";
    folder = home / ".config";
  }
  return (folder / "permafrost" / "config.json").string();
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const json config, ReadConfig(path));
  Contexts contexts;
  const json servers = config.value("contexts", json::object());
  if (!servers.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": contexts: is no object"));
  for (const auto& [name, context] : servers.items()) {
    const auto server = context.is_object() ? context.find("server") : context.end();
    if (server == context.end() || !server->is_string() || !IsContextName(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": contexts: ", name, R"(: accepted: "NAME": {"server": "HOST:PORT"})"));
    }
    contexts.servers[name] = *server;
    CredentialFiles files;
    for (const auto& [key, member] : kFileKeys) {
      const auto file = context.find(key);
      if (file == context.end()) continue;
      if (!file->is_string()) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": contexts: ", name, ": ", key, ": is no path"));
      }
      files.*member = *file;
    }
    files.tls = context.value("tls", json(false)) == json(true);
    if (files != CredentialFiles()) contexts.credentials[name] = std::move(files);
  }
  const auto current = config.find("current_context");
  if (current != config.end() && !current->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": current_context: is no name"));
  }
  if (current != config.end()) contexts.current = *current;
  return contexts;
}

absl::Status WriteContexts(const std::string& path, const Contexts& contexts) {
  if (path.empty()) {
    return absl::FailedPreconditionError("neither XDG_CONFIG_HOME nor HOME is set: there is no place for contexts");
  }
  PF_ASSIGN_OR_RETURN(json config, ReadConfig(path));
  config["contexts"] = json::object();
  for (const auto& [name, server] : contexts.servers) {
    json& context = config["contexts"][name] = {{"server", server}};
    const auto files = contexts.credentials.find(name);
    if (files == contexts.credentials.end()) continue;
    for (const auto& [key, member] : kFileKeys) {
      if (!(files->second.*member).empty()) context[key] = files->second.*member;
    }
    if (files->second.tls) context["tls"] = true;
  }
  config["current_context"] = contexts.current;
  PF_RETURN_IF_ERROR(CreateDirectories(std::filesystem::path(path).parent_path()));
  // If the path is a symbolic link, because the user keeps settings elsewhere, writes to its target and keeps the
  // link.
  PF_ASSIGN_OR_RETURN(const std::filesystem::path file, FileToReplace(path));
  return WriteFileAtomic(file, absl::StrCat(config.dump(2, ' ', false, json::error_handler_t::replace), "\n"));
}

bool IsContextName(const std::string& name) {
  const auto may_follow = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= 63 && absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::ranges::all_of(name, may_follow);
}

absl::StatusOr<std::string> ResolveServer(const ServerWish& wish, const Contexts& contexts,
                                          const std::string& otherwise) {
  if (!wish.server.empty()) return wish.server;
  if (wish.context.empty() && !wish.environment.empty()) return wish.environment;
  const std::string& name = wish.context.empty() ? contexts.current : wish.context;
  if (name.empty()) return otherwise;
  const auto context = contexts.servers.find(name);
  if (context == contexts.servers.end()) {
    return absl::InvalidArgumentError(absl::StrCat(wish.context.empty() ? "the current context" : "--context", ": '",
                                                   name, "' is no context; ", KnownContexts(contexts)));
  }
  return context->second;
}

CredentialFiles ResolveCredentials(const ServerWish& wish, const Contexts& contexts) {
  if (!wish.server.empty() || (wish.context.empty() && !wish.environment.empty())) return {};
  const auto found = contexts.credentials.find(wish.context.empty() ? contexts.current : wish.context);
  return found == contexts.credentials.end() ? CredentialFiles() : found->second;
}

}  // namespace permafrost::client
