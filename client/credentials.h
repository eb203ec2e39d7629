// The protection of a connection to a server, and the credentials of the caller. Flags, environment variables and
// contexts name the files that hold them. Threads: one. Everything is pure except for reading the environment and the
// files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace permafrost::client {

// Paths of files. A path that is not given is empty.
struct CredentialFiles {
  std::string token_file;
  // PEM files: the certificate of the authority that signed the server's certificate, and the client's own
  // certificate and key.
  std::string ca_cert, client_cert, client_key;
  // Uses TLS with the authorities that gRPC knows. The certificate files above imply TLS.
  bool tls = false;
  bool operator==(const CredentialFiles&) const = default;
};

// The contents of the files.
struct Credentials {
  std::string token;
  bool tls = false;
  std::string ca_cert, client_cert, client_key;  // PEM
};

// Takes each credential from the first source that has it: `flags`, then the environment (PERMAFROST_TOKEN,
// PERMAFROST_TOKEN_FILE, PERMAFROST_CA_CERT, PERMAFROST_CLIENT_CERT, PERMAFROST_CLIENT_KEY, PERMAFROST_TLS), then
// `context`. `server` is the address to which the credentials will be sent.
// Errors: InvalidArgument for an unreadable file, an invalid token, a certificate without its key, and a key without
// its certificate. InvalidArgument also for a PERMAFROST_TLS that is not a boolean, and for a token that would travel
// in plain text. The message names the flag or variable and the file, never the contents of the file.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& flags, const CredentialFiles& context,
                                            const std::string& server);

// Makes a channel that sends the token with each call.
std::shared_ptr<grpc::Channel> MakeChannelTo(const std::string& server, const Credentials& credentials,
                                             const grpc::ChannelArguments& arguments);

}  // namespace permafrost::client
