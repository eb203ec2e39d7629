#include "client/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "client/failure.h"
#include "client/message_fields.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/time.h"

namespace permafrost::client {
namespace {

// The interval at which the client looks for Ctrl-C while it waits for a connection. gRPC offers no way to wake that
// wait.
constexpr absl::Duration kInterruptPoll = absl::Milliseconds(100);

// Returns a deadline for gRPC as elapsed time, so that changes of the wall clock do not matter.
gpr_timespec After(absl::Duration duration) {
  return gpr_time_from_nanos(absl::ToInt64Nanoseconds(duration), GPR_TIMESPAN);
}

std::shared_ptr<grpc::Channel> MakeChannel(const GlobalOptions& options) {
  grpc::ChannelArguments arguments;
  // The history of a job with a million epochs exceeds gRPC's default limit of 4 MiB.
  arguments.SetMaxReceiveMessageSize(-1);
  // The daemon is on a nearby network, which a proxy for the web may not reach.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A watcher reconnects within a second after a restart of the daemon. With gRPC's default, it would wait up to two
  // minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The time limit of one attempt to connect. Streams have no other limit.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(options.timeout())));
  return MakeChannelTo(options.server, options.credentials, arguments);
}

}  // namespace

Session::Session(GlobalOptions options)
    : options_(std::move(options)),
      interrupt_(std::make_shared<Interrupt>()),
      terminal_(std::make_shared<Terminal>(!options_.no_color)),
      channel_(MakeChannel(options_)) {}

Session::Session(const Session& first, std::string name, std::string server, Credentials credentials)
    : options_(first.options_), interrupt_(first.interrupt_), terminal_(first.terminal_), name_(std::move(name)) {
  options_.context = name_ == server ? "" : name_;
  options_.server = std::move(server);
  options_.credentials = std::move(credentials);
  channel_ = MakeChannel(options_);
}

bool Session::Connect() {
  if (ever_connected_) return true;
  Interrupt::Scope keep_running(*interrupt_, nullptr);
  const Stopwatch watch;
  grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    const bool too_late = watch.Elapsed() >= options_.timeout();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || interrupt_->requested() || too_late) return false;
    channel_->WaitForStateChange(state, After(kInterruptPoll));
    state = channel_->GetState(/*try_to_connect=*/true);
  }
  ever_connected_ = true;
  return true;
}

grpc::Status Session::Unary(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  return Unary(options_.timeout(), call);
}

grpc::Status Session::Unary(absl::Duration timeout, const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  if (!Connect()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no connection");
  grpc::ClientContext context;
  context.set_deadline(After(timeout));
  Interrupt::Scope scope(*interrupt_, &context);
  return call(&context);
}

ExitCode Session::Fail(const grpc::Status& status) { return Fail(status, options_.timeout()); }

ExitCode Session::Fail(const grpc::Status& status, absl::Duration timeout) {
  if (interrupt_->requested()) return Interrupted("");
  return Fail(RpcFailure(status, {options_.server, ever_connected_, timeout, options_.credentials.tls, name_}));
}

ExitCode Session::Fail(const Failure& failure) {
  terminal_->ClearLive();
  std::fflush(stdout);
  Failure named = failure;
  if (named.from_server) named.server = name_;
  const std::string text = json() ? RenderJson(named) : RenderText(named);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return failure.exit;
}

ExitCode Session::Interrupted(std::string_view come_back) {
  Failure failure;
  failure.exit = ExitCode::kInterrupted;
  failure.code = "INTERRUPTED";
  failure.message = come_back.empty() ? "interrupted" : std::string(come_back);
  return Fail(failure);
}

void Session::PrintJson(const google::protobuf::Message& message) { terminal_->Line(ToJson(message)); }

void Session::Print(std::string_view text) { terminal_->Write(text); }

void Session::PrintBeside(const OutputTarget& target, std::string_view text) {
  if (!target.is_stdout()) return Print(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string Session::CommandLine(std::string_view command) const {
  if (options_.server == options_.implied_server) return absl::StrCat("permafrost ", AbslView(command));
  return options_.context.empty() ? absl::StrCat("permafrost --server ", options_.server, " ", AbslView(command))
                                  : absl::StrCat("permafrost --context ", options_.context, " ", AbslView(command));
}

namespace {

// Returns the signals that the thread waits for. SIGUSR1 only wakes the thread when the program ends by itself.
sigset_t Awaited() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = Awaited();
  // sigwait never sees an ignored signal, so SIGUSR1 must not be ignored. SIGINT stays ignored if the parent process
  // (nohup) ignored it.
  signal(SIGUSR1, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

Interrupt::~Interrupt() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

bool Interrupt::requested() const { return requested_.is_set(); }

bool Interrupt::WaitFor(absl::Duration duration) const { return requested_.WaitFor(duration); }

void Interrupt::Wait() {
  const sigset_t set = Awaited();
  while (true) {
    int signal_number = 0;
    sigwait(&set, &signal_number);
    if (signal_number == SIGINT) OnSignal();
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
  }
}

void Interrupt::OnSignal() {
  absl::MutexLock lock(&mu_);
  if (requested_.is_set() || scopes_.empty()) _exit(static_cast<int>(ExitCode::kInterrupted));
  requested_.Set();
  for (grpc::ClientContext* context : scopes_)
    if (context != nullptr) context->TryCancel();
}

Interrupt::Scope::Scope(Interrupt& interrupt, grpc::ClientContext* context) : interrupt_(interrupt), context_(context) {
  absl::MutexLock lock(&interrupt_.mu_);
  interrupt_.scopes_.push_back(context_);
  if (interrupt_.requested_.is_set() && context_ != nullptr) context_->TryCancel();
}

Interrupt::Scope::~Scope() {
  absl::MutexLock lock(&interrupt_.mu_);
  interrupt_.scopes_.erase(std::find(interrupt_.scopes_.begin(), interrupt_.scopes_.end(), context_));
}

}  // namespace permafrost::client
