#include "client/requests.h"

#include <gtest/gtest.h>

#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {
namespace {

TEST(RequestSize, NamesTheFieldThatTakesTheMost) {
  v1::CreateJobRequest job;
  job.mutable_spec()->set_dataset("datasets/cora");
  (*job.mutable_labels())["note"] = "short";
  EXPECT_TRUE(CheckRequestSize(job).ok());
  (*job.mutable_labels())["note"] = std::string(2'000'000, 'x');
  const grpc::Status labels = CheckRequestSize(job);
  EXPECT_EQ(labels.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(labels.error_message().find("labels: 20000"), 0u) << labels.error_message();

  v1::ImportDatasetRequest import;
  import.mutable_options()->set_source_path(std::string(2'000'000, 'x'));
  EXPECT_EQ(CheckRequestSize(import).error_message(),
            "options.source_path: 2000000 bytes, and a request has room for 1048576 in all");
}

}  // namespace
}  // namespace permafrost::client
