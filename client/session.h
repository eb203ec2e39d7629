// One run of the program: its global options, the connection, and the destination of output.
// Threads: one, besides the thread of Interrupt.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "client/credentials.h"
#include "client/failure.h"
#include "client/received_file.h"
#include "client/terminal.h"
#include "google/protobuf/message.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace permafrost::client {

inline constexpr char kDefaultServer[] = "127.0.0.1:7433";

struct GlobalOptions {
  std::string server = kDefaultServer;
  // The value of --context, or empty without the flag.
  std::string context;
  // The server of a command whose flags name no server.
  std::string implied_server = kDefaultServer;
  // The files that the flags name.
  CredentialFiles credential_files;
  // The credentials that ReadCredentials made from the flags, the environment and the context.
  Credentials credentials;
  // "table" or "json".
  std::string output = "table";
  bool no_color = false;
  // The time limit in seconds for an RPC that answers once, and for each attempt to connect.
  double timeout_seconds = 10;

  bool json() const { return output == "json"; }
  absl::Duration timeout() const { return absl::Seconds(timeout_seconds); }
};

// Handles Ctrl-C, which ends the program with exit code 130. While a Scope lives, the first Ctrl-C only cancels the
// work of the Scope, and a second one ends the program.
// Threads: one thread waits for the signal. All methods are safe anywhere.
class Interrupt {
 public:
  // Blocks SIGINT in the calling thread and in the threads that it starts, so that only the waiting thread sees it.
  // Construct it before any other thread runs.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const;
  // Waits for `duration`. Returns true early on Ctrl-C.
  bool WaitFor(absl::Duration duration) const;

  // While a Scope lives, Ctrl-C does not end the program. Instead it cancels `context`, unless that is null, and
  // makes requested() true. Borrows the context, which must outlive the Scope.
  class Scope {
   public:
    Scope(Interrupt& interrupt, grpc::ClientContext* context);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Interrupt& interrupt_;
    grpc::ClientContext* context_;
  };

 private:
  void Wait();
  void OnSignal();

  Event requested_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> scopes_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

class Session {
 public:
  explicit Session(GlobalOptions options);
  // Connects to another server, and shares the terminal and the Ctrl-C handling of `first`. `name` appears in errors
  // that the server returns and, without TLS, in the error for an unreachable server.
  Session(const Session& first, std::string name, std::string server, Credentials credentials);

  const GlobalOptions& options() const { return options_; }
  bool json() const { return options_.json(); }
  // Returns the server's name in --on, or an empty text without --on.
  const std::string& name() const { return name_; }
  Terminal& terminal() { return *terminal_; }
  Interrupt& interrupt() { return *interrupt_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Waits for a connection, at most for the timeout. Returns true at once if there was a connection before. Returns
  // false if the connection was refused or took too long, or on Ctrl-C.
  bool Connect();

  // Makes one RPC that answers once, within `timeout` or, without it, within the options' timeout. `call` is a method
  // of a stub, with every argument bound except the context.
  grpc::Status Unary(const std::function<grpc::Status(grpc::ClientContext*)>& call);
  grpc::Status Unary(absl::Duration timeout, const std::function<grpc::Status(grpc::ClientContext*)>& call);
  // Prints why an RPC failed. The RPC's time limit was `timeout` or, without it, the options' timeout.
  ExitCode Fail(const grpc::Status& status);
  ExitCode Fail(const grpc::Status& status, absl::Duration timeout);
  ExitCode Fail(const Failure& failure);
  // Prints that Ctrl-C ended the command. `come_back` says which work goes on at the server, and how to follow that
  // work again. `come_back` is empty if no work goes on.
  ExitCode Interrupted(std::string_view come_back);

  // Prints the message as one line of JSON.
  void PrintJson(const google::protobuf::Message& message);
  // Prints the text as it is, including its newlines.
  void Print(std::string_view text);
  // Prints a remark about an output file: on stderr if the file is standard output, else on standard output.
  void PrintBeside(const OutputTarget& target, std::string_view text);

  // Returns, for example, "permafrost job watch x". Adds --server or --context if the server is not the implied one.
  std::string CommandLine(std::string_view command) const;

 private:
  GlobalOptions options_;
  std::shared_ptr<Interrupt> interrupt_;  // declared before the members that start threads
  std::shared_ptr<Terminal> terminal_;
  std::shared_ptr<grpc::Channel> channel_;
  bool ever_connected_ = false;
  std::string name_;
};

}  // namespace permafrost::client
