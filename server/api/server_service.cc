#include "api/server_service.h"

#include <unistd.h>

#include <utility>

#include "api/convert_time.h"
#include "api/resource_name.h"
#include "api/text.h"
#include "api/unary.h"

namespace permafrost::api {
namespace {

// Answers, then drains: OnDone comes after the answer is on its way.
class DrainReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit DrainReactor(const std::function<void()>& request_drain) : request_drain_(request_drain) {
    Finish(grpc::Status::OK);
  }
  void OnDone() override {
    request_drain_();
    delete this;
  }

 private:
  const std::function<void()>& request_drain_;  // the service's, which outlives its calls
};

}  // namespace

void ServerService::SetListenAddress(std::string address) {
  absl::MutexLock lock(&mu_);
  listen_address_ = std::move(address);
}

grpc::ServerUnaryReactor* ServerService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetServerInfoRequest* /*request*/,
                                                       v1::ServerInfo* response) {
  response->set_version(info_.version);
  response->set_git_commit(info_.git_commit);
  response->set_torch_version(info_.torch_version);
  response->set_device(info_.device);
  response->set_threads(info_.threads);
  SetTime(info_.start_time, [response] { return response->mutable_start_time(); });
  response->set_state_dir(ValidUtf8(info_.state_dir));
  for (const std::string& root : info_.import_roots) response->add_import_roots(ValidUtf8(root));
  response->set_draining(jobs_.draining());
  {
    absl::MutexLock lock(&mu_);
    response->set_listen_address(listen_address_);
  }
  response->set_metrics_address(info_.metrics_address);
  response->set_process_id(getpid());
  const auto counts = jobs_.CountByState();
  const auto count = [&counts](jobs::JobState s) { return static_cast<int32_t>(counts[static_cast<size_t>(s)]); };
  response->set_queued_jobs(count(jobs::JobState::kQueued));
  response->set_running_jobs(count(jobs::JobState::kRunning) + count(jobs::JobState::kCancelling));
  response->set_datasets(static_cast<int32_t>(catalog_.List().size()));
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ServerService::Drain(grpc::CallbackServerContext* /*context*/,
                                               const v1::DrainRequest* /*request*/, v1::DrainResponse* response) {
  if (const JobId running = jobs_.Drain(); !running.empty()) response->set_running_job(FormatJobName(running));
  return new DrainReactor(request_drain_);
}

}  // namespace permafrost::api
