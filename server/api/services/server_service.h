// ServerService answers questions about the daemon and controls it. Borrows the job manager, the catalog, the tokens,
// the stream set and the limits.
// Threads: gRPC's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "access/token_store.h"
#include "api/guard/call_limits.h"
#include "api/services/daemon_facts.h"
#include "api/streams/server_stream.h"
#include "api/streams/stream_work.h"
#include "base/change_hub.h"
#include "base/device.h"
#include "base/monotonic.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::api {

// The state of the server that changes while it runs. Handlers and watches of ServerService read it.
class ServerStatus {
 public:
  ServerStatus(ServerInfo info, std::function<DeviceState()> device_state,
               std::function<std::optional<ClockJump>()> clock_jump, jobs::JobManager& jobs, data::Catalog& catalog)
      : info_(std::move(info)),
        device_state_(std::move(device_state)),
        clock_jump_(std::move(clock_jump)),
        jobs_(jobs),
        catalog_(catalog) {}

  // Sets the bound host:port, which is known only once the server runs.
  void SetListenAddress(std::string address);
  // Returns the current state.
  v1::ServerInfo Read() const;

 private:
  const ServerInfo info_;
  const std::function<DeviceState()> device_state_;
  const std::function<std::optional<ClockJump>()> clock_jump_;
  jobs::JobManager& jobs_;
  data::Catalog& catalog_;
  mutable absl::Mutex mu_;
  std::string listen_address_ ABSL_GUARDED_BY(mu_);
};

class ServerService final : public v1::ServerService::CallbackService {
 public:
  // `request_drain` is called after the answer to Drain has been sent, and must not block. `device_state` is called
  // on any thread. `tokens` is null if the server keeps no tokens.
  ServerService(ServerInfo info, std::function<DeviceState()> device_state, std::function<void()> request_drain,
                jobs::JobManager& jobs, data::Catalog& catalog, access::TokenStore* tokens, MakeBackup make_backup,
                ClockWatch clock, StreamSet& streams, CallLimits& limits);
  ~ServerService() override;

  void SetListenAddress(std::string address) { status_.SetListenAddress(std::move(address)); }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerWriteReactor<v1::ServerInfo>* WatchServer(grpc::CallbackServerContext* context,
                                                        const v1::WatchServerRequest* request) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(grpc::CallbackServerContext* context,
                                                       const v1::BackupRequest* request) override;
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context, const v1::CreateTokenRequest* request,
                                        v1::Token* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context, const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context, const v1::RevokeTokenRequest* request,
                                        google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ConfirmClock(grpc::CallbackServerContext* context, const v1::ConfirmClockRequest* request,
                                         v1::ConfirmClockResponse* response) override;

 private:
  // Wakes the watches at a fixed interval, because the device gives no notice when its memory changes.
  void Tick();

  ServerStatus status_;
  const std::function<void()> request_drain_;
  jobs::JobManager& jobs_;
  access::TokenStore* const tokens_;
  const MakeBackup make_backup_;
  const std::function<absl::StatusOr<absl::Duration>()> confirm_clock_;
  StreamSet& streams_;
  CallLimits& limits_;
  ChangeHub hub_;
  ChangeHub backup_hub_;
  std::atomic<int64_t> backups_ = 0;
  Event closing_;
  std::thread ticker_;
};

}  // namespace permafrost::api
