#include "client/credentials.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/host_port.h"
#include "base/status.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/client_interceptor.h"

namespace permafrost::client {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;

std::string EnvironmentOf(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The path of a file, and the flag or variable that named it.
struct NamedFile {
  std::string by, path;
};

NamedFile FirstOf(const std::string& flag, const char* flag_name, const char* variable, const std::string& context) {
  if (!flag.empty()) return {flag_name, flag};
  if (std::string value = EnvironmentOf(variable); !value.empty()) return {variable, std::move(value)};
  return {absl::StrCat("the context's ", flag_name), context};
}

absl::StatusOr<std::string> ContentOf(const NamedFile& file) {
  if (file.path.empty()) return "";
  absl::StatusOr<std::string> content = ReadFile(file.path);
  if (content.ok()) return content;
  return absl::InvalidArgumentError(absl::StrCat(file.by, ": ", content.status().message()));
}

absl::StatusOr<std::string> TokenOf(const std::string& text, const std::string& from) {
  std::string token(absl::StripAsciiWhitespace(text));
  // The error must not repeat any part of the token.
  if (token.empty() || !std::ranges::all_of(token, [](unsigned char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat(from, ": holds no token: accepted: one line, as pft_..."));
  }
  return token;
}

// Returns whether data for the server stays on this machine.
bool StaysHere(const std::string& server) {
  if (absl::StartsWith(server, "unix:")) return true;
  const absl::StatusOr<HostPort> address = ParseHostPort(server);
  return address.ok() && IsLoopback(*address);
}

class TokenGiver final : public Interceptor {
 public:
  explicit TokenGiver(const std::string& authorization) : authorization_(authorization) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", authorization_});
    }
    methods->Proceed();
  }

 private:
  const std::string& authorization_;  // owned by the factory, which the channel owns
};

class TokenGivers final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenGivers(const std::string& token) : authorization_("Bearer " + token) {}
  Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenGiver(authorization_);
  }

 private:
  const std::string authorization_;
};

}  // namespace

absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& flags, const CredentialFiles& context,
                                            const std::string& server) {
  Credentials credentials;
  const std::string given = EnvironmentOf("PERMAFROST_TOKEN");
  if (flags.token_file.empty() && !given.empty()) {
    PF_ASSIGN_OR_RETURN(credentials.token, TokenOf(given, "PERMAFROST_TOKEN"));
  } else if (const NamedFile file =
                 FirstOf(flags.token_file, "--token-file", "PERMAFROST_TOKEN_FILE", context.token_file);
             !file.path.empty()) {
    PF_ASSIGN_OR_RETURN(const std::string text, ContentOf(file));
    PF_ASSIGN_OR_RETURN(credentials.token, TokenOf(text, absl::StrCat(file.by, " ", file.path)));
  }
  const NamedFile ca = FirstOf(flags.ca_cert, "--ca-cert", "PERMAFROST_CA_CERT", context.ca_cert);
  const NamedFile cert = FirstOf(flags.client_cert, "--client-cert", "PERMAFROST_CLIENT_CERT", context.client_cert);
  const NamedFile key = FirstOf(flags.client_key, "--client-key", "PERMAFROST_CLIENT_KEY", context.client_key);
  if (cert.path.empty() != key.path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(cert.path.empty() ? key.by : cert.by, " is given without ",
                                                   cert.path.empty() ? "--client-cert" : "--client-key",
                                                   ": accepted: both"));
  }
  PF_ASSIGN_OR_RETURN(credentials.ca_cert, ContentOf(ca));
  PF_ASSIGN_OR_RETURN(credentials.client_cert, ContentOf(cert));
  PF_ASSIGN_OR_RETURN(credentials.client_key, ContentOf(key));
  bool tls = context.tls;
  if (const std::string value = EnvironmentOf("PERMAFROST_TLS"); !value.empty() && !absl::SimpleAtob(value, &tls)) {
    return absl::InvalidArgumentError(absl::StrCat("PERMAFROST_TLS \"", value, "\": accepted: true or false"));
  }
  credentials.tls = flags.tls || tls || !ca.path.empty() || !cert.path.empty();
  if (!credentials.token.empty() && !credentials.tls && !StaysHere(server)) {
    return absl::InvalidArgumentError(absl::StrCat("the token would travel to ", server,
                                                   " in plain text: accepted: --ca-cert FILE or --tls, an address of "
                                                   "this machine, or no token"));
  }
  return credentials;
}

std::shared_ptr<grpc::Channel> MakeChannelTo(const std::string& server, const Credentials& credentials,
                                             const grpc::ChannelArguments& arguments) {
  const std::shared_ptr<grpc::ChannelCredentials> security =
      credentials.tls ? grpc::SslCredentials({.pem_root_certs = credentials.ca_cert,
                                              .pem_private_key = credentials.client_key,
                                              .pem_cert_chain = credentials.client_cert})
                      : grpc::InsecureChannelCredentials();
  if (credentials.token.empty()) return grpc::CreateCustomChannel(server, security, arguments);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> givers;
  givers.push_back(std::make_unique<TokenGivers>(credentials.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(server, security, arguments, std::move(givers));
}

}  // namespace permafrost::client
