#include "api/services/server_service.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "access/token_store.h"
#include "api/guard/call_limits.h"
#include "api/services/unary.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "api/wire/status.h"
#include "api/wire/wire_values.h"
#include "base/status.h"
#include "jobs/request_log.h"

namespace permafrost::api {
namespace {

// The interval between two notices to watches.
constexpr absl::Duration kWatchInterval = absl::Seconds(1);
constexpr char kServerKey[] = "server";

void RestoredToWire(const backup::Manifest& backup, v1::RestoredBackup& wire) {
  SetTime(backup.create_time, [&wire] { return wire.mutable_create_time(); });
  wire.set_version(backup.version);
  for (const std::string& dataset : backup.datasets_wanted) wire.add_datasets_wanted("datasets/" + dataset);
  for (const JobId& job : backup.jobs_anew) wire.add_jobs_anew(FormatJobName(job));
  for (const std::string& dataset : backup.imports) wire.add_imports("datasets/" + dataset);
}

v1::DeviceState DeviceStateToWire(const DeviceState& state) {
  v1::DeviceState wire;
  v1::DeviceMemory& memory = *wire.mutable_memory();
  if (state.memory.allocated) memory.set_allocated_bytes(*state.memory.allocated);
  if (state.memory.reserved) memory.set_reserved_bytes(*state.memory.reserved);
  if (state.memory.driver) memory.set_driver_bytes(*state.memory.driver);
  if (state.memory.recommended_max) memory.set_recommended_max_bytes(*state.memory.recommended_max);
  if (state.memory.resident) memory.set_resident_bytes(*state.memory.resident);
  if (state.graph_entries) wire.set_graph_entries(*state.graph_entries);
  wire.set_no_graph_entries_reason(state.no_graph_entries_reason);
  for (const auto& [reason, count] : state.empty_caches) {
    v1::EmptyCacheCount& emptied = *wire.add_empty_caches();
    emptied.set_reason(reason);
    emptied.set_count(count);
  }
  if (state.utilization) wire.set_utilization(*state.utilization);
  for (const DeviceSetting& setting : state.settings) {
    v1::DeviceSetting& told = *wire.add_settings();
    // Names and values come from the environment, and may be any bytes.
    told.set_name(ValidUtf8(setting.name));
    told.set_value(ValidUtf8(setting.value));
  }
  for (const std::string& warning : state.warnings) wire.add_warnings(ValidUtf8(warning));
  return wire;
}

// Sends the server's current state, and after a notice the new state if it has changed. Borrows both arguments.
class ServerWatch final : public StreamSource<v1::ServerInfo> {
 public:
  ServerWatch(const ServerStatus& status, ChangeHub& hub) : status_(status), hub_(hub) {}
  absl::StatusOr<Pull> Next(v1::ServerInfo& response) override {
    response = status_.Read();
    std::string bytes = response.SerializeAsString();
    if (bytes == sent_) return Pull::kWait;
    // A change is sent only after the next notice. The beginning of a drain is sent at once, because the server soon
    // ends.
    const bool drains = response.draining() && !std::exchange(draining_, response.draining());
    if (!sent_.empty() && !drains && !due_.exchange(false)) return Pull::kWait;
    sent_ = std::move(bytes);
    return Pull::kMore;
  }
  // Next reads published values, and takes no lock that is held during disk writes.
  bool may_wait() const override { return false; }
  std::string_view watch() const override { return "ServerService/WatchServer"; }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    return hub_.Subscribe(kServerKey, [this, listener = std::move(listener)] {
      due_ = true;
      listener();
    });
  }

 private:
  const ServerStatus& status_;
  ChangeHub& hub_;
  std::string sent_;  // the last response
  bool draining_ = false;
  std::atomic<bool> due_ = false;
};

// A Drain call. The code that creates the call also calls Finish. OnDone, which runs once the answer is on its way,
// requests the drain.
class DrainReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit DrainReactor(const std::function<void()>& request_drain) : request_drain_(request_drain) {}
  // Answers without a drain. Call it instead of Finish.
  void AnswerOnly(const absl::Status& status) {
    drains_ = false;
    Finish(ToGrpcStatus(status));
  }
  void OnDone() override {
    if (drains_) request_drain_();
    delete this;
  }

 private:
  const std::function<void()>& request_drain_;  // the service's, which outlives its calls
  bool drains_ = true;                          // set before Finish
};

using Seen = jobs::Earlier::Seen;
using Roles = WireEnum<v1::Token::Role, access::kRoleNames>;

constexpr char kTokenCollection[] = "tokens/";

absl::Status NoTokens() { return absl::UnimplementedError("this server keeps no tokens"); }

void TokenToWire(const access::Token& token, v1::Token& wire) {
  wire.set_name(kTokenCollection + token.id);
  wire.set_role(Roles::ToWire(token.role));
  wire.set_label(ValidUtf8(token.label));
  SetTime(token.create_time, [&wire] { return wire.mutable_create_time(); });
  SetTime(token.expire_time, [&wire] { return wire.mutable_expire_time(); });
}

absl::Status MakeToken(access::TokenStore& tokens, jobs::RequestLog& requests, const v1::CreateTokenRequest& request,
                       v1::Token& response) {
  const v1::Token& wanted = request.token();
  Violations violations;
  access::Role role = access::Role::kViewer;
  if (wanted.role() == v1::Token::ROLE_UNSPECIFIED) {
    violations.Add("token.role", "is not given: accepted: " + Roles::Accepted());
  } else {
    Roles::Read(wanted.role(), "token.role", role, violations);
  }
  // 9999-12-31T23:59:59Z, the last time that a wire timestamp and its JSON can express.
  constexpr int64_t kLastSecond = 253'402'300'799;
  const auto& expires = wanted.expire_time();
  if (wanted.has_expire_time() && (expires.seconds() < 0 || expires.seconds() > kLastSecond || expires.nanos() < 0 ||
                                   expires.nanos() > 999'999'999)) {
    violations.Add("token.expire_time", "is no time of the years 1970 to 9999");
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const absl::Time expire_time = wanted.has_expire_time() ? absl::FromUnixSeconds(wanted.expire_time().seconds()) +
                                                                absl::Nanoseconds(wanted.expire_time().nanos())
                                                          : absl::InfiniteFuture();
  return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) -> absl::Status {
    // The client did not get the first answer, and thus not the secret. A repeated call gives the same token a new
    // secret.
    absl::StatusOr<access::TokenStore::Made> made = absl::NotFoundError("");
    if (earlier.seen != Seen::kNever) made = tokens.ChangeSecret(request.request_id());
    if (absl::IsNotFound(made.status()) && earlier.seen != Seen::kAnswered) {
      made = tokens.Create(role, wanted.label(), expire_time, request.request_id());
    }
    PF_RETURN_IF_ERROR(made.status());
    TokenToWire(made->token, response);
    response.set_secret(made->secret);
    return absl::OkStatus();
  });
}

absl::Status RemoveToken(access::TokenStore& tokens, jobs::RequestLog& requests,
                         const v1::RevokeTokenRequest& request) {
  absl::string_view id = request.name();
  if (!absl::ConsumePrefix(&id, kTokenCollection) || !access::IsTokenId(id)) {
    Violations violations;
    // The error omits the value, so that a secret that was passed by mistake reaches no log.
    violations.Add("name", "is not tokens/ID, as ListTokens tells them");
    return violations.ToStatus();
  }
  return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) {
    if (earlier.seen == Seen::kAnswered) return absl::OkStatus();
    const absl::Status revoked = tokens.Revoke(std::string(id));
    return earlier.seen == Seen::kBegun && absl::IsNotFound(revoked) ? absl::OkStatus() : revoked;
  });
}

}  // namespace

void ServerStatus::SetListenAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  listen_address_ = std::move(address);
}

v1::ServerInfo ServerStatus::Read() const {
  v1::ServerInfo wire;
  wire.set_version(info_.version);
  wire.set_git_commit(info_.git_commit);
  wire.set_torch_version(info_.torch_version);
  wire.set_device(info_.device);
  wire.set_threads(info_.threads);
  SetTime(info_.start_time, [&wire] { return wire.mutable_start_time(); });
  wire.set_state_dir(ValidUtf8(info_.state_dir));
  for (const std::string& root : info_.import_roots) wire.add_import_roots(ValidUtf8(root));
  wire.set_draining(jobs_.draining());
  {
    absl::MutexLock lock(&mu_);
    wire.set_listen_address(listen_address_);
  }
  wire.set_metrics_address(info_.metrics_address);
  wire.set_socket_path(ValidUtf8(info_.socket_path));
  wire.set_auth(info_.auth);
  wire.set_tls(info_.tls);
  if (info_.restored) RestoredToWire(*info_.restored, *wire.mutable_restored());
  wire.set_process_id(getpid());
  const auto counts = jobs_.CountByState();
  const auto count = [&counts](jobs::JobState s) { return static_cast<int32_t>(counts[static_cast<size_t>(s)]); };
  wire.set_queued_jobs(count(jobs::JobState::kQueued));
  int32_t on_device = 0;
  for (const auto& [state, name] : jobs::kJobStateNames.rows) on_device += jobs::IsOnDevice(state) ? count(state) : 0;
  wire.set_running_jobs(on_device);
  wire.set_paused_jobs(count(jobs::JobState::kPaused));
  const auto datasets = catalog_.usage().datasets;
  wire.set_datasets(static_cast<int32_t>(std::accumulate(datasets.begin(), datasets.end(), int64_t{0})));
  *wire.mutable_device_state() = DeviceStateToWire(device_state_());
  if (const std::optional<ClockJump> jump = clock_jump_()) {
    // The jump is given in whole seconds, so that the passing of time alone does not count as a change, which a watch
    // would send.
    *wire.mutable_clock_jump()->mutable_by() = SignedDuration(absl::Trunc(jump->by, absl::Seconds(1)));
    SetTime(absl::FromUnixSeconds(absl::ToUnixSeconds(jump->noticed)),
            [&wire] { return wire.mutable_clock_jump()->mutable_notice_time(); });
  }
  return wire;
}

ServerService::ServerService(ServerInfo info, std::function<DeviceState()> device_state,
                             std::function<void()> request_drain, jobs::JobManager& jobs, data::Catalog& catalog,
                             access::TokenStore* tokens, MakeBackup make_backup, ClockWatch clock, StreamSet& streams,
                             CallLimits& limits)
    : status_(std::move(info), std::move(device_state), std::move(clock.jump), jobs, catalog),
      request_drain_(std::move(request_drain)),
      jobs_(jobs),
      tokens_(tokens),
      make_backup_(std::move(make_backup)),
      confirm_clock_(std::move(clock.confirm)),
      streams_(streams),
      limits_(limits),
      hub_(kWatchInterval),
      ticker_([this] { Tick(); }) {}

ServerService::~ServerService() {
  closing_.Set();
  ticker_.join();
}

void ServerService::Tick() {
  while (!closing_.WaitFor(kWatchInterval)) hub_.Notify(kServerKey);
}

grpc::ServerUnaryReactor* ServerService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetServerInfoRequest* /*request*/,
                                                       v1::ServerInfo* response) {
  const absl::Status admitted = limits_.connections.Admit(*context).status();
  if (admitted.ok()) *response = status_.Read();
  return Reply(context, admitted);
}

grpc::ServerWriteReactor<v1::ServerInfo>* ServerService::WatchServer(grpc::CallbackServerContext* context,
                                                                     const v1::WatchServerRequest* /*request*/) {
  return StartStream<v1::ServerInfo>(
      *context, limits_.watches, streams_,
      [&]() -> absl::StatusOr<std::unique_ptr<ServerWatch>> { return std::make_unique<ServerWatch>(status_, hub_); });
}

grpc::ServerUnaryReactor* ServerService::Drain(grpc::CallbackServerContext* /*context*/,
                                               const v1::DrainRequest* request, v1::DrainResponse* response) {
  auto* call = new DrainReactor(request_drain_);
  const auto drain = [this, call, response, key = KeyOf(*request)] {
    const absl::StatusOr<bool> answered = jobs_.requests().IsAnswered(key);
    if (absl::IsInvalidArgument(answered.status()) || absl::IsAlreadyExists(answered.status())) {
      return call->AnswerOnly(answered.status());
    }
    // True if this request was answered before, by this process or by an earlier one. An earlier process has then
    // stopped, as the client wanted. If the request log cannot be read, the server drains anyway.
    const bool again = answered.value_or(false);
    if (again && !jobs_.draining()) return call->AnswerOnly(absl::OkStatus());
    if (!again) jobs_.requests().Remember(key);
    if (const JobId running = jobs_.Drain(); !running.empty()) response->set_running_job(FormatJobName(running));
    if (again) return call->AnswerOnly(absl::OkStatus());
    call->Finish(grpc::Status::OK);
  };
  // `drain` runs on a worker, because it waits for the jobs' lock. If too many calls wait, `drain` is skipped,
  // because main asks the jobs to drain anyway.
  if (!limits_.workers.Post(drain)) call->Finish(grpc::Status::OK);
  return call;
}

grpc::ServerWriteReactor<v1::BackupResponse>* ServerService::Backup(grpc::CallbackServerContext* context,
                                                                    const v1::BackupRequest* request) {
  return StartStream<v1::BackupResponse>(
      *context, limits_.backups, streams_, [&]() -> absl::StatusOr<std::unique_ptr<BackupSource>> {
        if (!make_backup_) return absl::UnimplementedError("this server makes no backups");
        return std::make_unique<BackupSource>(make_backup_, jobs_.requests(), *request, backup_hub_,
                                              std::to_string(++backups_));
      });
}

grpc::ServerUnaryReactor* ServerService::CreateToken(grpc::CallbackServerContext* context,
                                                     const v1::CreateTokenRequest* request, v1::Token* response) {
  if (tokens_ == nullptr) return Reply(context, NoTokens());
  absl::StatusOr<CallLimit::Slot> slot = limits_.token_changes.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "a new token", *std::move(slot),
                           [=, this] { return MakeToken(*tokens_, jobs_.requests(), *request, *response); });
}

grpc::ServerUnaryReactor* ServerService::ListTokens(grpc::CallbackServerContext* context,
                                                    const v1::ListTokensRequest* /*request*/,
                                                    v1::ListTokensResponse* response) {
  const absl::Status admitted = limits_.connections.Admit(*context).status();
  if (!admitted.ok()) return Reply(context, admitted);
  if (tokens_ == nullptr) return Reply(context, NoTokens());
  for (const access::Token& token : tokens_->List()) TokenToWire(token, *response->add_tokens());
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ServerService::ConfirmClock(grpc::CallbackServerContext* context,
                                                      const v1::ConfirmClockRequest* request,
                                                      v1::ConfirmClockResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this]() -> absl::Status {
    if (!confirm_clock_) return absl::UnimplementedError("this server keeps no account of its clock");
    return jobs_.requests().Once(KeyOf(*request), "", [&](const jobs::Earlier& earlier) -> absl::Status {
      // A repeated request confirms nothing: a jump that came after the first answer is another jump.
      if (earlier.seen == jobs::Earlier::Seen::kAnswered) return absl::OkStatus();
      PF_ASSIGN_OR_RETURN(const absl::Duration jump, confirm_clock_());
      if (jump != absl::ZeroDuration()) *response->mutable_jump() = SignedDuration(absl::Trunc(jump, absl::Seconds(1)));
      return absl::OkStatus();
    });
  });
}

grpc::ServerUnaryReactor* ServerService::RevokeToken(grpc::CallbackServerContext* context,
                                                     const v1::RevokeTokenRequest* request,
                                                     google::protobuf::Empty* /*response*/) {
  if (tokens_ == nullptr) return Reply(context, NoTokens());
  absl::StatusOr<CallLimit::Slot> slot = limits_.token_changes.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "the revocation of a token", *std::move(slot),
                           [=, this] { return RemoveToken(*tokens_, jobs_.requests(), *request); });
}

}  // namespace permafrost::api
