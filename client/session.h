// One run of the program: its global options, the connection, and where output goes.
// Threads: one, beside Interrupt's.
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
  // The value of --context; empty: not given.
  std::string context;
  // The server that is meant where no flag names one.
  std::string implied_server = kDefaultServer;
  // As the flags name them, and what is in them and in what the environment and the context name.
  CredentialFiles credential_files;
  Credentials credentials;
  // "table" or "json".
  std::string output = "table";
  bool no_color = false;
  // Seconds for an RPC that answers once, and for each attempt to connect.
  double timeout_seconds = 10;

  bool json() const { return output == "json"; }
  absl::Duration timeout() const { return absl::Seconds(timeout_seconds); }
};

// Ctrl-C: ends the program with 130, or, while something that can be cancelled in good order is under way, cancels it.
// A second Ctrl-C always ends the program.
// Threads: one waits for the signal; everything here is safe from any thread.
class Interrupt {
 public:
  // Blocks SIGINT in the calling thread and those it starts, so that only the waiting thread sees it: construct before
  // any other thread runs.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const;
  // Returns early, and true, on Ctrl-C.
  bool WaitFor(absl::Duration duration) const;

  // While one lives, Ctrl-C does not end the program: it cancels `context` (null: nothing) and requested() turns true.
  // Borrows the context, which outlives the scope.
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
  // Connects to another server, and shares the terminal and the Ctrl-C of `first`. `name` stands in the errors that the
  // server returns and, without TLS, where it is unreachable.
  Session(const Session& first, std::string name, std::string server, Credentials credentials);

  const GlobalOptions& options() const { return options_; }
  bool json() const { return options_.json(); }
  // Returns the server's name in --on; empty without --on.
  const std::string& name() const { return name_; }
  Terminal& terminal() { return *terminal_; }
  Interrupt& interrupt() { return *interrupt_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Waits for a connection, at most the timeout, unless there was one before. False: refused, too late, or Ctrl-C.
  bool Connect();

  // Makes one RPC that answers once, within the timeout of the options or within `timeout`. `call` is Stub::Method with
  // everything but the context bound.
  grpc::Status Unary(const std::function<grpc::Status(grpc::ClientContext*)>& call);
  grpc::Status Unary(absl::Duration timeout, const std::function<grpc::Status(grpc::ClientContext*)>& call);
  // Prints why an RPC failed, whose `timeout` was the options' or another.
  ExitCode Fail(const grpc::Status& status);
  ExitCode Fail(const grpc::Status& status, absl::Duration timeout);
  ExitCode Fail(const Failure& failure);
  // Prints that Ctrl-C ended the command. `come_back`: what goes on at the server and how to see it again; empty:
  // nothing does.
  ExitCode Interrupted(std::string_view come_back);

  // The message as one line of JSON.
  void PrintJson(const google::protobuf::Message& message);
  // Text as it is, its newlines included.
  void Print(std::string_view text);
  // Prints what is said beside a file: on stderr where standard output is the file's.
  void PrintBeside(const OutputTarget& target, std::string_view text);

  // "permafrost job watch x", with --server or --context where that flag names another server than is implied.
  std::string CommandLine(std::string_view command) const;

 private:
  GlobalOptions options_;
  std::shared_ptr<Interrupt> interrupt_;  // before anything that starts threads
  std::shared_ptr<Terminal> terminal_;
  std::shared_ptr<grpc::Channel> channel_;
  bool ever_connected_ = false;
  std::string name_;
};

}  // namespace permafrost::client
