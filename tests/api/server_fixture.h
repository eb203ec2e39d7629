// The api room behind a real port, called through a real channel. It serves the real jobs room over a runner that the
// test drives.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "api/server.h"
#include "base/hash.h"
#include "base/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "job_requests.h"
#include "jobs/manager_fixture.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/plan.grpc.pb.h"
#include "permafrost/v1/server.grpc.pb.h"
#include "temp_dir.h"

namespace permafrost::api {

// Long enough for a slow machine under a sanitizer. A passing test never waits this long.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Writes a checkpoint of a job with these weights. Its manifest gives `hash` as their checksum.
inline void WriteCheckpoint(const jobs::Server& jobs, const std::string& id, int64_t step, const std::string& weights,
                            const std::string& hash) {
  const std::string folder = absl::StrCat("checkpoints/", step, "/");
  const std::string digest =
      HashHex(Hash64(absl::StrCat(R"({"files":{"model.safetensors":{"bytes":)", weights.size(), R"(,"xxh3":")", hash,
                                  R"("}},"state":{"batch":5,"best_epoch":1,"epoch":2}})")));
  jobs.WriteFile(id, folder + "model.safetensors", weights);
  jobs.WriteFile(id, folder + "state.json",
                 absl::StrCat(R"({
 "checkpoint": {
  "files": {
   "model.safetensors": {
    "bytes": )",
                              weights.size(), R"(,
    "xxh3": ")",
                              hash, R"("
   }
  },
  "state": {
   "batch": 5,
   "best_epoch": 1,
   "epoch": 2
  }
 },
 "xxh3": ")",
                              digest, "\"\n}"));
}

// Counts finished calls by "METHOD CODE".
class RequestCounts {
 public:
  void Add(std::string_view method, std::string_view code) {
    absl::MutexLock lock(&mu_);
    ++counts_[absl::StrCat(AbslView(method), " ", AbslView(code))];
  }
  std::map<std::string, int> all() const {
    absl::MutexLock lock(&mu_);
    return counts_;
  }
  bool Await(const std::string& key, int count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return counts_[key] == count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mu_);
};

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.info.version = "1.2.3";
    options.info.device = "cpu";
    options.info.threads = 2;
    options.info.start_time = absl::FromUnixSeconds(5);
    options.info.import_roots = {"/data"};
    options.default_graph_cache = default_graph_cache_;
    options.limits = limits_;
    options.uploads = uploads_;
    options.programs = programs_;
    options.access.tokens = store_of_tokens_;
    options.access.gate = gate_;
    options.observe_request = [this](std::string_view method, std::string_view code, absl::Duration duration) {
      EXPECT_GE(duration, absl::ZeroDuration());
      if (before_status_) before_status_(method);
      counts_.Add(method, code);
    };
    options.observe_stream = [this](std::string_view method, int change) {
      const absl::MutexLock lock(&device_mu_);
      open_streams_[std::string(method)] += change;
    };
    options.observe_dropped = [this](std::string_view method) {
      const absl::MutexLock lock(&device_mu_);
      ++dropped_states_[std::string(method)];
    };
    options.device_state = [this] {
      const absl::MutexLock lock(&device_mu_);
      return device_;
    };
    options.make_backup = make_backup_;
    options.clock = clock_;
    options.request_drain = [this] { drain_requested_.Notify(); };
    auto server = Server::Start(std::move(options), jobs_.manager(), jobs_.catalog());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    job_stub_ = v1::JobService::NewStub(channel_);
    cache_stub_ = v1::GraphCacheService::NewStub(channel_);
    dataset_stub_ = v1::DatasetService::NewStub(channel_);
    server_stub_ = v1::ServerService::NewStub(channel_);
  }

  // Returns the detail of type T from the trailer `grpc-status-details-bin`.
  template <class T>
  static std::optional<T> Detail(const grpc::Status& status) {
    google::rpc::Status details;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    for (const auto& any : details.details()) {
      if (T detail; any.UnpackTo(&detail)) return detail;
    }
    return std::nullopt;
  }
  // Returns the fields that a refusal names, in order. Empty if it names none.
  static std::vector<std::string> Fields(const grpc::Status& status) {
    std::vector<std::string> fields;
    const auto bad = Detail<google::rpc::BadRequest>(status);
    if (!bad) return fields;
    for (const auto& violation : bad->field_violations()) fields.push_back(violation.field());
    return fields;
  }

  void SetDevice(DeviceState device) {
    const absl::MutexLock lock(&device_mu_);
    device_ = std::move(device);
  }

  // Returns the number of open streams of each method, as the server reported them.
  std::map<std::string, int> OpenStreams() {
    const absl::MutexLock lock(&device_mu_);
    return open_streams_;
  }

  int DroppedStates(const std::string& method) {
    const absl::MutexLock lock(&device_mu_);
    return dropped_states_[method];
  }

  absl::Mutex device_mu_;
  DeviceState device_ ABSL_GUARDED_BY(device_mu_);
  std::map<std::string, int> open_streams_ ABSL_GUARDED_BY(device_mu_);
  std::map<std::string, int> dropped_states_ ABSL_GUARDED_BY(device_mu_);
  const spec::PolicyOptions default_graph_cache_{
      .policy = spec::Policy::kFreeze, .freeze_at = 40, .on_miss = spec::OnMiss::kEager};
  // The limits of the server that SetUp starts.
  CallLimitOptions limits_;
  // Called before the server sends a call's status. The status waits until it returns.
  std::function<void(std::string_view method)> before_status_;
  data::UploadStore* uploads_ = nullptr;
  jobs::ProgramStore* programs_ = nullptr;  // like `uploads_`: null unless a test sets it
  access::TokenStore* store_of_tokens_ = nullptr;
  const access::Gate* gate_ = nullptr;
  MakeBackup make_backup_;
  ClockWatch clock_;
  const TempDir state_;
  jobs::Server jobs_{state_.path() / "state"};
  RequestCounts counts_;
  absl::Notification drain_requested_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> job_stub_;
  std::unique_ptr<v1::GraphCacheService::Stub> cache_stub_;
  std::unique_ptr<v1::DatasetService::Stub> dataset_stub_;
  std::unique_ptr<v1::ServerService::Stub> server_stub_;
};

}  // namespace permafrost::api
