// Tells how a connection to a server is protected and who its caller is: files that flags, variables and contexts name.
// Threads: one; all but the environment and the files is pure.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace permafrost::client {

// Paths; empty: not given.
struct CredentialFiles {
  std::string token_file;
  // PEM files: the certificate of whoever signed the server's, and the client's own certificate and key.
  std::string ca_cert, client_cert, client_key;
  // TLS with the authorities that gRPC knows; the files above imply TLS.
  bool tls = false;
  bool operator==(const CredentialFiles&) const = default;
};

// The contents of the files.
struct Credentials {
  std::string token;
  bool tls = false;
  std::string ca_cert, client_cert, client_key;  // PEM
};

// Each from the first of `flags`, the environment (PERMAFROST_TOKEN, PERMAFROST_TOKEN_FILE, PERMAFROST_CA_CERT,
// PERMAFROST_CLIENT_CERT, PERMAFROST_CLIENT_KEY, PERMAFROST_TLS) and `context` that gives it. `server`: whom they are
// for. Errors: InvalidArgument naming the flag or variable and the file, never what is in it, for a file that cannot be
// read, a token that is none, a certificate without its key, and a token that would travel in plain text.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& flags, const CredentialFiles& context,
                                            const std::string& server);

// Gives the token with each call.
std::shared_ptr<grpc::Channel> MakeChannelTo(const std::string& server, const Credentials& credentials,
                                             const grpc::ChannelArguments& arguments);

}  // namespace permafrost::client
