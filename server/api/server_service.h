// ServerService: the daemon about itself.
// Threads: gRPC's.
// Borrows the job manager and the catalog.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "api/server_info.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::api {

class ServerService final : public v1::ServerService::CallbackService {
 public:
  // `request_drain` must not block; called after the answer to Drain has been sent.
  ServerService(ServerInfo info, std::function<void()> request_drain, jobs::JobManager& jobs, data::Catalog& catalog)
      : info_(std::move(info)), request_drain_(std::move(request_drain)), jobs_(jobs), catalog_(catalog) {}

  // host:port as bound, which is known only once the server runs.
  void SetListenAddress(std::string address);

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  const ServerInfo info_;
  const std::function<void()> request_drain_;
  jobs::JobManager& jobs_;
  data::Catalog& catalog_;
  absl::Mutex mu_;
  std::string listen_address_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::api
