// `permafrost server token`: tokens, which let people and programs call the server.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/string_view.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/requests.h"
#include "client/style.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr char kTokens[] = "tokens";

struct NewTokenFlags {
  std::optional<std::string> role;
  std::string label, expires, to;
};

// Parses a number of seconds, minutes, hours, days or weeks, such as "30d". Returns nullopt for any other text.
std::optional<absl::Duration> LifetimeOf(absl::string_view text) {
  const struct {
    char unit;
    absl::Duration duration;
  } kUnits[] = {{'s', absl::Seconds(1)},
                {'m', absl::Minutes(1)},
                {'h', absl::Hours(1)},
                {'d', absl::Hours(24)},
                {'w', absl::Hours(7 * 24)}};
  constexpr int32_t kMost = 1'000'000'000;
  for (const auto& [unit, duration] : kUnits) {
    int32_t count = 0;
    if (text.empty() || text.back() != unit) continue;
    if (!absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) || count < 1 || count > kMost) return std::nullopt;
    return count * duration;
  }
  return std::nullopt;
}

std::string RoleText(v1::Token::Role role) { return EnumShortName(*v1::Token::Role_descriptor(), role); }

// Returns, for example, "2027-02-21 02:16", or "never".
std::string ExpiryText(const v1::Token& token) {
  if (!token.has_expire_time()) return "never";
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(token.expire_time().seconds()),
                          absl::LocalTimeZone());
}

// Writes a new file that only its owner can read. Refuses to replace an existing file. Returns an empty text, or the
// reason of a failure.
std::string WriteSecret(const std::string& path, const std::string& secret) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::StrCat(path, ": cannot make it: ", std::strerror(errno));
  const std::string line = secret + "\n";
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(fd) == 0;
  const int error = errno;
  if (close(fd) != 0 || !written) return absl::StrCat(path, ": cannot write: ", std::strerror(error));
  return "";
}

ExitCode CreateToken(Session& session, const NewTokenFlags& flags) {
  v1::CreateTokenRequest request;
  request.mutable_token()->set_role(EnumOf<v1::Token::Role>(*v1::Token::Role_descriptor(), flags.role.value_or("")));
  request.mutable_token()->set_label(flags.label);
  if (!flags.expires.empty()) {
    const std::optional<absl::Duration> lifetime = LifetimeOf(flags.expires);
    if (!lifetime) {
      return session.Fail(UsageFailure(
          absl::StrCat("--expires '", OneLine(flags.expires), "': accepted: a number of s, m, h, d or w, as 90d")));
    }
    request.mutable_token()->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(absl::Now() + *lifetime));
  }
  // Checks the file before the token is made, because a token whose secret cannot be written is of no use to anybody.
  if (!flags.to.empty() && access(flags.to.c_str(), F_OK) == 0) {
    return session.Fail(LocalFileFailure(absl::StrCat(flags.to, ": is there already: it is not written over")));
  }
  request.set_request_id(MakeUuid());
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::Token token;
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return stub->CreateToken(context, request, &token); });
  if (!status.ok()) return session.Fail(status);
  if (!flags.to.empty()) {
    if (const std::string why = WriteSecret(flags.to, token.secret()); !why.empty()) {
      return session.Fail(LocalFileFailure(absl::StrCat(why, "; revoke ", OneLine(token.name()), " and make another")));
    }
    token.clear_secret();
  }
  if (session.json()) {
    session.PrintJson(token);
    return ExitCode::kOk;
  }
  std::vector<Field> fields = {{"token", OneLine(StripCollection(kTokens, token.name()))},
                               {"role", RoleText(token.role())},
                               {"expires", ExpiryText(token)}};
  if (!token.label().empty()) fields.push_back({"label", OneLine(token.label())});
  fields.push_back({"secret", flags.to.empty() ? absl::StrCat(OneLine(token.secret()), " (not shown again)")
                                               : absl::StrCat("in ", flags.to)});
  session.Print(RenderFields(fields, session.terminal().style()));
  return ExitCode::kOk;
}

ExitCode ListTokens(Session& session) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::ListTokensResponse response;
  const grpc::Status status = session.Unary(
      [&](grpc::ClientContext* context) { return stub->ListTokens(context, v1::ListTokensRequest(), &response); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(response);
    return ExitCode::kOk;
  }
  if (response.tokens().empty()) {
    session.Print("no tokens; make one with: permafrost server token create --role operator\n");
    return ExitCode::kOk;
  }
  const ViewTime time = ViewTime::Now();
  std::vector<std::vector<Cell>> rows;
  rows.reserve(static_cast<size_t>(response.tokens_size()));
  for (const v1::Token& token : response.tokens()) {
    rows.push_back({OneLine(StripCollection(kTokens, token.name())), RoleText(token.role()),
                    WhenText(token.create_time(), time), ExpiryText(token), OneLine(token.label())});
  }
  session.Print(
      RenderTable({{"TOKEN"}, {"ROLE"}, {"CREATED"}, {"EXPIRES"}, {"LABEL"}}, rows, session.terminal().style()));
  return ExitCode::kOk;
}

ExitCode RevokeToken(Session& session, const std::string& id) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::RevokeTokenRequest request;
  request.set_name(absl::StrCat(kTokens, "/", AbslView(StripCollection(kTokens, id))));
  request.set_request_id(MakeUuid());
  google::protobuf::Empty response;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->RevokeToken(context, request, &response); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(response);
  } else {
    session.Print(absl::StrCat("token ", OneLine(StripCollection(kTokens, id)), " revoked\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddTokenCommands(CLI::App& server, Command& chosen) {
  CLI::App* token = server.add_subcommand("token", "Bearer tokens: who may call")->require_subcommand(1);
  CLI::App* create = token->add_subcommand("create", "Make a token; its secret is shown once");
  const auto flags = std::make_shared<NewTokenFlags>();
  AddEnumOption(*create, "--role", flags->role, *v1::Token::Role_descriptor(),
                "What it may do: viewer reads; operator has jobs and datasets too; admin drain, backup and tokens too");
  create->get_option("--role")->required();
  create->add_option("--label", flags->label, "Whose it is, and for what")->type_name("TEXT");
  create->add_option("--expires", flags->expires, "How long it is good for, as 90d (s, m, h, d, w); default: always")
      ->type_name("TIME");
  create->add_option("--to", flags->to, "Write the secret to a new file, mode 0600, rather than show it")
      ->type_name("FILE");
  create->callback([flags, &chosen] { chosen = [flags](Session& session) { return CreateToken(session, *flags); }; });
  token->add_subcommand("list", "All tokens; never their secrets")->callback([&chosen] { chosen = ListTokens; });
  CLI::App* revoke = token->add_subcommand("revoke", "Make a token worthless from now on");
  const auto id = std::make_shared<std::string>();
  revoke->add_option("TOKEN", *id, "As token list shows it")->type_name("")->required();
  revoke->callback([id, &chosen] { chosen = [id](Session& session) { return RevokeToken(session, *id); }; });
}

}  // namespace permafrost::client
