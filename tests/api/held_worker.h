// A call that occupies a server's worker thread, so that other calls have to wait.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "jobs/fakes.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::api {

// Occupies the only thread of a server with `limits_.threads = 1`, from construction until Release. Its call is a
// GetDataset of `zinc` that waits in the catalog.
class HeldWorker {
 public:
  HeldWorker(jobs::FakeCatalog& catalog, v1::DatasetService::Stub& stub) : catalog_(catalog) {
    catalog_.OnGet([this] {
      held_.Notify();
      release_.WaitForNotification();
    });
    call_ = std::thread([this, &stub] {
      grpc::ClientContext context;
      v1::GetDatasetRequest request;
      request.set_name("datasets/zinc");
      v1::Dataset dataset;
      status_ = stub.GetDataset(&context, request, &dataset);
    });
    held_.WaitForNotification();
    catalog_.OnGet(nullptr);
  }
  HeldWorker(const HeldWorker&) = delete;
  HeldWorker& operator=(const HeldWorker&) = delete;
  ~HeldWorker() {
    if (call_.joinable()) Release();
  }
  // Returns the status of the call. Call it once.
  grpc::Status Release() {
    release_.Notify();
    call_.join();
    return status_;
  }

 private:
  jobs::FakeCatalog& catalog_;
  absl::Notification held_, release_;
  grpc::Status status_;
  std::thread call_;
};

}  // namespace permafrost::api
