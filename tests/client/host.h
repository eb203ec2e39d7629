// One of the several scripted servers that a command speaks to.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "client/fake_server.h"
#include "client/sample_jobs.h"
#include "google/rpc/error_details.pb.h"

namespace permafrost::client {

// A server on which every job succeeds.
class Host {
 public:
  // The answers of this server. A test may change them between commands.
  struct Facts {
    v1::ServerInfo info;
    v1::Dataset::State state = v1::Dataset::STATE_READY;
    std::string checksum = "00000000000000aa", program = "00000000000000bb";
    bool has_dataset = true, refuses = false;
    // The server refuses models with more channels, because they need too much memory.
    int32_t most_channels = 4096;
    // Jobs on this server that no command of the test created.
    std::vector<v1::Job> others;
    // Adds a job that is queued, or paused if `its_state` says so.
    void AddOther(int32_t priority, v1::Job::State its_state = v1::Job::STATE_QUEUED) {
      v1::Job& job = others.emplace_back(QueuedJob());
      job.set_name(absl::StrCat("jobs/other-", others.size()));
      job.mutable_spec()->set_priority(priority);
      job.set_state(its_state);
      if (its_state == v1::Job::STATE_PAUSED) return info.set_paused_jobs(info.paused_jobs() + 1);
      info.set_queued_jobs(info.queued_jobs() + 1);
    }
  };

  Host() {
    facts_.info.set_device("cpu");
    facts_.info.set_version("1.0");
    fake_.server.info = [this](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
      info = facts().info;
      info.set_state_dir(fake_.address());
      return grpc::Status::OK;
    };
    fake_.datasets.get = [this](const v1::GetDatasetRequest& request, v1::Dataset& dataset) {
      const Facts told = facts();
      if (!told.has_dataset) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no dataset " + request.name());
      dataset.set_name(request.name());
      dataset.set_state(told.state);
      dataset.set_content_checksum(told.checksum);
      return grpc::Status::OK;
    };
    fake_.programs.get = [this](const v1::GetProgramRequest&, v1::Program& program) {
      program.set_xxh3(facts().program);
      return grpc::Status::OK;
    };
    fake_.jobs.list = [this](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
      if (request.filter().empty()) {
        for (const v1::Job& job : facts().others) *response.add_jobs() = job;
        return grpc::Status::OK;
      }
      for (const std::string& name : Jobs()) {
        // All jobs created here have the label `sweep = s`.
        const bool is_meant = request.filter() == "labels.sweep = \"s\"" ||
                              request.filter() == absl::StrCat("name = \"", name.substr(5), "\"");
        if (is_meant) response.add_jobs()->set_name(name);
      }
      return grpc::Status::OK;
    };
    fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      if (facts().refuses) return TwoViolations();
      if (request.spec().model().hidden_channels() > facts().most_channels)
        return Violated({{"spec.model", "needs about 99 GB; this process may use 8 GB"}});
      job = QueuedJob();
      job.set_name(absl::StrCat("jobs/", request.job_id().empty() ? "made" : request.job_id()));
      if (request.validate_only()) return grpc::Status::OK;
      created_.Add(request);
      AddJob(job.name());
      return grpc::Status::OK;
    };
    fake_.jobs.watch = [](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>& writer,
                          grpc::ServerContext&) {
      v1::Job job = RunningJob(1);
      job.set_name(request.name());
      job.set_state(v1::Job::STATE_SUCCEEDED);
      writer.Write(job);
      return grpc::Status::OK;
    };
    fake_.Start();
  }

  std::string address() const { return fake_.address(); }
  void Stop() { fake_.Stop(); }
  // Returns the names of the created jobs.
  std::vector<std::string> Jobs() const {
    absl::MutexLock lock(&mu_);
    return {jobs_.begin(), jobs_.end()};
  }
  void AddJob(const std::string& name) {
    absl::MutexLock lock(&mu_);
    jobs_.insert(name);
  }
  // Returns the requests that created jobs.
  std::vector<v1::CreateJobRequest> created() const { return created_.seen(); }
  Facts facts() const {
    absl::MutexLock lock(&mu_);
    return facts_;
  }
  void Set(const Facts& facts) {
    absl::MutexLock lock(&mu_);
    facts_ = facts;
  }

 private:
  static grpc::Status Violated(const std::vector<FieldViolation>& violations) {
    google::rpc::BadRequest bad;
    std::vector<std::string> parts;
    for (const FieldViolation& v : violations) {
      auto* violation = bad.add_field_violations();
      violation->set_field(v.field);
      violation->set_description(v.description);
      parts.push_back(absl::StrCat(v.field, ": ", v.description));
    }
    return WithDetails(grpc::StatusCode::INVALID_ARGUMENT, absl::StrJoin(parts, "; "), {&bad});
  }
  static grpc::Status TwoViolations() { return Violated({{"spec.seed", "is bad"}, {"spec.epochs", "is bad"}}); }

  mutable absl::Mutex mu_;
  Facts facts_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> jobs_ ABSL_GUARDED_BY(mu_);
  Recorder<v1::CreateJobRequest> created_;
  FakeServer fake_;
};

}  // namespace permafrost::client
