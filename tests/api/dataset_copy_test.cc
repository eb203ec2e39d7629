// Tests DatasetCopier against a server with a real catalog.
#include "api/peers/dataset_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "data/ogb_folder.h"
#include "server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class DatasetCopyTest : public ServerTest {
 protected:
  void SetUp() override {
    set_ = data::MakeStore(dir_.path() / "leader", data::SmallSet());
    ASSERT_NE(set_, nullptr);
    StartPeer(uint64_t{1} << 30);
  }
  void TearDown() override {
    server_.reset();
    peer_.reset();
  }
  void StartPeer(uint64_t max_upload_bytes) {
    const fs::path uploads = dir_.path() / "uploads";
    auto catalog = data::Catalog::Create(
        {.directory = dir_.path() / "datasets", .import_roots = {dir_.path()}, .own_files = uploads});
    ASSERT_TRUE(catalog.ok()) << catalog.status();
    catalog_ = *std::move(catalog);
    auto store = data::UploadStore::Create({.directory = uploads, .max_bytes = max_upload_bytes});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ServerOptions options;
    options.uploads = store_.get();
    auto server = Server::Start(std::move(options), jobs_.manager(), *catalog_);
    ASSERT_TRUE(server.ok()) << server.status();
    peer_ = *std::move(server);
    channel_ = grpc::CreateChannel(peer_->address(), grpc::InsecureChannelCredentials());
  }
  train::RecruitRequest Request() {
    train::RecruitRequest request;
    request.options.dataset = DatasetId("small");
    request.dataset_checksum = HashHex(set_->content_checksum());
    request.dataset_file = set_->path();
    request.log = [this](std::string_view line) { lines_.emplace_back(line); };
    return request;
  }
  absl::Status Copy() {
    DatasetCopier copier("");
    return copier.Copy(Request(), "peer:1", channel_);
  }
  // Starts the upload of a copy, and sends its first `bytes` bytes, as an interrupted copy would leave it.
  UploadId Begin(size_t bytes) {
    const std::string all = *ReadFile(set_->path());
    const std::string xxh3 = HashHex(Hash64(all));
    const UploadId id("copy-" + xxh3);
    const auto writer =
        store_->Open(id, {{.path = "graphs.pfg", .bytes = static_cast<int64_t>(all.size()), .xxh3 = xxh3}});
    EXPECT_TRUE(writer.ok()) << writer.status();
    const std::string_view begin = std::string_view(all).substr(0, bytes);
    EXPECT_TRUE((*writer)->Append(0, 0, begin, Hash64(begin)).ok());
    return id;
  }
  std::string ChecksumThere() { return HashHex(catalog_->Get(DatasetId("small"))->content_checksum); }

  const TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
  std::unique_ptr<data::Catalog> catalog_;
  std::unique_ptr<data::UploadStore> store_;
  std::unique_ptr<Server> peer_;
  std::vector<std::string> lines_;
};

TEST_F(DatasetCopyTest, ThePeerHasItThenAndNothingElseIsLeft) {
  ASSERT_EQ(Copy(), absl::OkStatus());
  EXPECT_EQ(ChecksumThere(), Request().dataset_checksum);
  EXPECT_EQ(*ReadFile(dir_.path() / "datasets/small/graphs.pfg"), *ReadFile(set_->path()));
  EXPECT_THAT(store_->List(UploadId(), 10), IsEmpty());
  EXPECT_THAT(lines_, ElementsAre(testing::MatchesRegex("copies dataset small \\(0.0[0-9]* MB\\) to peer:1"),
                                  StartsWith("copied dataset small to peer:1 in ")));
  lines_.clear();
  EXPECT_EQ(Copy(), absl::OkStatus()) << "it is there";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(DatasetCopyTest, AnUploadGoesOnWhereItStopped) {
  Begin(3000);
  ASSERT_EQ(Copy(), absl::OkStatus());
  EXPECT_EQ(ChecksumThere(), Request().dataset_checksum);
  EXPECT_THAT(lines_[0], HasSubstr(" to peer:1, which has 0.003 MB of it"));
}

TEST_F(DatasetCopyTest, SeveralServersMayCopyItAtOnce) {
  std::vector<std::thread> leaders;
  std::vector<absl::Status> copied(4, absl::UnknownError(""));
  leaders.reserve(copied.size());
  for (absl::Status& status : copied) {
    leaders.emplace_back([&] {
      DatasetCopier copier("");
      train::RecruitRequest request = Request();
      request.log = [](std::string_view) {};
      status = copier.Copy(request, "peer:1", channel_);
    });
  }
  for (std::thread& leader : leaders) leader.join();
  for (const absl::Status& status : copied) EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(ChecksumThere(), Request().dataset_checksum);
  EXPECT_EQ(catalog_->usage().imports.succeeded, 1);
}

TEST_F(DatasetCopyTest, OtherDataIsNotReplaced) {
  data::Files other = data::SmallSet();
  other["raw/graph-label.csv"] = "1\n2\n3\n";
  data::WriteFiles(dir_.path() / "other", other);
  ASSERT_TRUE(catalog_->Import(DatasetId("small"), {.source = dir_.path() / "other"}).ok());
  const absl::Status refused = Copy();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(refused.message(),
            "dataset small is not there, and cannot be copied: other data has taken its name meanwhile");
  EXPECT_NE(ChecksumThere(), Request().dataset_checksum);
}

TEST_F(DatasetCopyTest, TheErrorSaysWhyItCannotBeCopied) {
  TearDown();
  StartPeer(/*max_upload_bytes=*/100);
  EXPECT_THAT(std::string(Copy().message()), HasSubstr("cannot be copied: uploads/copy-"));
  EXPECT_THAT(std::string(Copy().message()), HasSubstr("accepted: 100 bytes of all uploads together (--max-upload)"));
  EXPECT_THAT(lines_, IsEmpty());
  peer_.reset();
  EXPECT_TRUE(absl::IsUnavailable(Copy())) << Copy();
}

TEST_F(DatasetCopyTest, AStopIsHeardWhileThePeerIsBusy) {
  const UploadId id = Begin(10);
  const std::string all = *ReadFile(set_->path());
  const auto held = store_->Open(
      id, {{.path = "graphs.pfg", .bytes = static_cast<int64_t>(all.size()), .xxh3 = HashHex(Hash64(all))}});
  ASSERT_TRUE(held.ok());
  train::RecruitRequest request = Request();
  int asked = 0;
  request.keep_going = [&asked] { return ++asked < 3; };
  DatasetCopier copier("");
  EXPECT_TRUE(absl::IsCancelled(copier.Copy(request, "peer:1", channel_)));
}

}  // namespace
}  // namespace permafrost::api
