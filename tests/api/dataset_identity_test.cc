// Tests the identity of datasets: uid, etag, and imports with validate_only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

class DatasetIdentityTest : public ServerTest {
 protected:
  DatasetIdentityTest() { jobs_.catalog().Remove("zinc"); }
  grpc::Status Import(const std::string& path, bool validate_only, v1::Dataset& dataset) {
    grpc::ClientContext context;
    v1::ImportDatasetRequest request;
    request.set_dataset_id("zinc");
    request.mutable_options()->set_source_path(path);
    request.set_validate_only(validate_only);
    return dataset_stub_->ImportDataset(&context, request, &dataset);
  }
  v1::Dataset Get() {
    grpc::ClientContext context;
    v1::GetDatasetRequest request;
    request.set_name("datasets/zinc");
    v1::Dataset dataset;
    EXPECT_TRUE(dataset_stub_->GetDataset(&context, request, &dataset).ok());
    return dataset;
  }
  grpc::Status Delete(const std::string& etag) {
    grpc::ClientContext context;
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/zinc");
    request.set_etag(etag);
    google::protobuf::Empty empty;
    return dataset_stub_->DeleteDataset(&context, request, &empty);
  }
};

TEST_F(DatasetIdentityTest, AnImportThatIsOnlyCheckedMakesNothing) {
  v1::Dataset checked;
  ASSERT_TRUE(Import("/data/zinc", /*validate_only=*/true, checked).ok());
  EXPECT_EQ(checked.name(), "datasets/zinc");
  EXPECT_EQ(checked.import_options().source_path(), "/data/zinc");
  EXPECT_EQ(checked.uid(), "");
  EXPECT_EQ(checked.etag(), "");
  EXPECT_TRUE(jobs_.catalog().List().empty());
  EXPECT_EQ(Import("/missing", /*validate_only=*/true, checked).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DatasetIdentityTest, ADeletionIsOfTheDatasetThatWasSeen) {
  v1::Dataset first;
  ASSERT_TRUE(Import("/data/zinc", /*validate_only=*/false, first).ok());
  EXPECT_EQ(first.uid(), "imported");
  const std::string etag = Get().etag();
  EXPECT_EQ(first.etag(), etag);
  data::Dataset other;
  other.id = DatasetId("zinc");
  other.uid = "another";
  other.state = data::DatasetState::kFailed;
  jobs_.catalog().Put(other);
  EXPECT_NE(Get().etag(), etag);
  const grpc::Status refused = Delete(etag);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused)->reason(), "ETAG_MISMATCH");
  EXPECT_TRUE(Delete(Get().etag()).ok());
  EXPECT_TRUE(jobs_.catalog().List().empty());
}

}  // namespace
}  // namespace permafrost::api
