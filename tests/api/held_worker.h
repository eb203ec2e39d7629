// A call that holds a thread for calls, so that others wait for one.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "api/fakes.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::api {

// Holds the only thread of a server with `limits_.threads = 1`, from its making on until Release: with ResumeJob of the
// job `a`, which it puts there, running.
class HeldWorker {
 public:
  HeldWorker(FakeJobManager& manager, v1::JobService::Stub& stub) : manager_(manager) {
    manager_.Put(MakeJob("a", jobs::JobState::kRunning));
    manager_.SetVerbWait([this](const std::string& verb) {
      if (verb != "resume") return;
      held_.Notify();
      release_.WaitForNotification();
    });
    call_ = std::thread([this, &stub] {
      grpc::ClientContext context;
      v1::ResumeJobRequest request;
      request.set_name("jobs/a");
      v1::Job job;
      status_ = stub.ResumeJob(&context, request, &job);
    });
    held_.WaitForNotification();
  }
  HeldWorker(const HeldWorker&) = delete;
  HeldWorker& operator=(const HeldWorker&) = delete;
  ~HeldWorker() {
    if (call_.joinable()) Release();
    manager_.SetVerbWait(nullptr);
  }
  // Returns the outcome of the call; once.
  grpc::Status Release() {
    release_.Notify();
    call_.join();
    return status_;
  }

 private:
  FakeJobManager& manager_;
  absl::Notification held_, release_;
  grpc::Status status_;
  std::thread call_;
};

}  // namespace permafrost::api
