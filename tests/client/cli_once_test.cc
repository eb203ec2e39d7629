// Tests that a command that changes something repeats its request with the request_id of the first try.
#include <string>
#include <vector>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;

class OnceCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }
  // Returns a handler that fails the first two tries and answers the third.
  template <class Request, class Response>
  auto ThirdTime() {
    return [this](const Request& request, Response&) {
      return ids_.Add(request.request_id()) < 2 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "away")
                                                : grpc::Status::OK;
    };
  }
  void ExpectOneId(const std::vector<std::string>& command, size_t before) {
    EXPECT_EQ(Run(command).exit_code, 0);
    const std::vector<std::string> seen = ids_.seen();
    ASSERT_EQ(seen.size(), before + 3);
    EXPECT_FALSE(seen[before].empty());
    for (size_t i = before; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[before]);
    for (size_t i = 0; i < before; ++i) EXPECT_NE(seen[i], seen[before]) << "each command has its own";
  }

  FakeServer fake_;
  Recorder<std::string> ids_;
};

TEST_F(OnceCommandTest, OfDatasets) {
  fake_.datasets.remove = ThirdTime<v1::DeleteDatasetRequest, google::protobuf::Empty>();
  fake_.datasets.import = ThirdTime<v1::ImportDatasetRequest, v1::Dataset>();
  fake_.Start();
  ExpectOneId({"dataset", "delete", "zinc"}, 0);
  // The fake counts the tries of all commands together, so from here on each command succeeds at its first try.
  EXPECT_EQ(Run({"dataset", "import", "zinc", "/data/zinc", "--no-watch"}).exit_code, 0);
  EXPECT_FALSE(ids_.seen().back().empty());
}

TEST_F(OnceCommandTest, OfGraphCaches) {
  fake_.caches.freeze = ThirdTime<v1::FreezeGraphCacheRequest, v1::GraphCache>();
  fake_.Start();
  ExpectOneId({"cache", "freeze", "zinc-1"}, 0);
}

TEST_F(OnceCommandTest, WhatADyingServerCancelledIsAskedAgain) {
  fake_.caches.thaw = [this](const v1::ThawGraphCacheRequest& request, v1::GraphCache&) {
    return ids_.Add(request.request_id()) < 2 ? grpc::Status(grpc::StatusCode::CANCELLED, "gone") : grpc::Status::OK;
  };
  fake_.Start();
  ExpectOneId({"cache", "thaw", "zinc-1"}, 0);
}

TEST_F(OnceCommandTest, AWatchTellsHowManyChangesItMissed) {
  fake_.jobs.watch = [](const v1::WatchJobRequest&, grpc::ServerWriter<v1::Job>& writer, grpc::ServerContext& context) {
    writer.Write(SucceededJob());
    context.AddTrailingMetadata("permafrost-dropped-states", "17");
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult watched = Run({"job", "watch", "zinc-1"});
  EXPECT_EQ(watched.exit_code, 0);
  EXPECT_THAT(watched.err, HasSubstr("17 changes were passed over"));
  EXPECT_EQ(Run({"job", "watch", "zinc-1", "--output", "json"}).err, "");
}

}  // namespace
}  // namespace permafrost::client
