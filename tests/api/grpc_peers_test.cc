// Tests which daemons a leader asks, and how it handles their answers. The daemons are servers in this process whose
// RunRank is scripted.
#include "api/peers/grpc_peers.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "api/wire/status.h"
#include "base/status.h"
#include "jobs/job_requests.h"
#include "permafrost/v1/worker.grpc.pb.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Peer final : public v1::WorkerService::Service {
 public:
  Peer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Peer() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }
  const std::string& address() const { return address_; }

  grpc::Status RunRank(grpc::ServerContext* context, const v1::RunRankRequest* request,
                       grpc::ServerWriter<v1::RunRankResponse>* writer) override {
    ++(request->validate_only() ? questions : calls);
    rank = static_cast<int>(request->rank());
    if (const absl::Status refused = answer ? answer() : absl::OkStatus(); !refused.ok()) return ToGrpcStatus(refused);
    if (request->validate_only()) return grpc::Status::OK;
    v1::RunRankResponse taken;
    taken.mutable_progress()->set_steps(7);
    writer->Write(taken);
    while (!context->IsCancelled()) {
      if (const absl::Status ended = end ? end() : absl::OkStatus(); !ended.ok()) return ToGrpcStatus(ended);
      absl::SleepFor(absl::Milliseconds(2));
    }
    return grpc::Status::CANCELLED;
  }

  std::function<absl::Status()> answer, end;  // OK from `answer` accepts the rank, and OK from `end` lets it go on
  std::atomic<int> calls = 0, questions = 0, rank = 0;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class GrpcPeersTest : public ::testing::Test {
 protected:
  std::unique_ptr<train::Peers> Peers() {
    return MakeGrpcPeers({.addresses = {a_.address(), b_.address()}, .version = "1", .device = "cpu"});
  }
  train::RecruitRequest Request(int64_t replicas, int64_t least) {
    train::RecruitRequest request{.job = "job", .least = least, .dataset_checksum = "0", .rendezvous_port = 5};
    request.options.dataset = DatasetId("zinc");
    request.options.replicas = replicas;
    request.log = [this](std::string_view line) { log_.emplace_back(line); };
    return request;
  }
  static absl::Status Busy() { return WithReason(absl::UnavailableError("it is busy"), jobs::kDeviceBusyReason); }
  // Waits until a rank has ended.
  static absl::Status AwaitFailure(train::Recruits& recruits) {
    absl::Status failed;
    for (int i = 0; i < 1000 && failed.ok(); ++i) failed = recruits.WaitForFailure();
    return failed;
  }

  Peer a_, b_;
  std::vector<std::string> log_;
};

TEST_F(GrpcPeersTest, TakesThoseThatJoinIfTheyAreEnough) {
  a_.answer = [] { return Busy(); };
  const auto peers = Peers();
  const auto team = peers->Recruit(Request(3, 1));
  ASSERT_TRUE(team.ok()) << team.status();
  EXPECT_THAT((*team)->addresses(), ElementsAre(b_.address()));
  EXPECT_EQ(b_.rank, 1);
  EXPECT_THAT(log_, ElementsAre("does not join: " + a_.address() + ": it is busy"));
  ASSERT_EQ((*team)->progress().size(), 1u);
  EXPECT_EQ((*team)->progress()[0].address, b_.address());
  EXPECT_EQ((*team)->progress()[0].steps, 7);

  const absl::Status few = peers->Recruit(Request(3, 2)).status();
  EXPECT_EQ(GetReason(few).reason, train::kTooFewPeersReason) << few;
  EXPECT_EQ(few.message(), "the job wants 2 other daemons, and 1 joins; " + a_.address() + ": it is busy");
}

TEST_F(GrpcPeersTest, AsksBusyOnesAgainWhileItHasPatience) {
  int asked = 0;
  a_.answer = [&] { return ++asked < 3 ? Busy() : absl::OkStatus(); };
  train::RecruitRequest request = Request(3, 1);
  request.patience = absl::Seconds(60);
  const auto team = Peers()->Recruit(request);
  ASSERT_TRUE(team.ok()) << team.status();
  EXPECT_THAT((*team)->addresses(), ElementsAre(b_.address(), a_.address()));
  EXPECT_EQ(a_.rank, 2);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(GrpcPeersTest, ThatAPeerCancelsIsNoStopOfTheJob) {
  a_.answer = [] { return absl::CancelledError("it was cancelled there"); };
  const auto team = Peers()->Recruit(Request(2, 1));
  ASSERT_TRUE(team.ok()) << team.status();
  EXPECT_THAT((*team)->addresses(), ElementsAre(b_.address()));
  train::RecruitRequest stopped = Request(3, 2);
  a_.answer = [] {
    absl::SleepFor(absl::Milliseconds(500));
    return Busy();
  };
  stopped.keep_going = [] { return false; };
  EXPECT_TRUE(absl::IsCancelled(Peers()->Recruit(stopped).status()));
}

TEST_F(GrpcPeersTest, AvoidsOneThatTakesARankAndDoesNotTrainIt) {
  a_.end = [] { return absl::InvalidArgumentError("it has no memory for the program"); };
  const auto peers = Peers();
  {
    const auto team = peers->Recruit(Request(2, 0));
    ASSERT_TRUE(team.ok()) << team.status();
    EXPECT_THAT(std::string(AwaitFailure(**team).message()), HasSubstr("it has no memory for the program"));
  }
  const auto next = peers->Recruit(Request(2, 0));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT((*next)->addresses(), ElementsAre(b_.address()));
  EXPECT_EQ(a_.calls, 1);
  b_.answer = [] { return Busy(); };
  EXPECT_FALSE(peers->CanRecruit(Request(3, 1)));
  EXPECT_EQ(a_.questions, 0);
  // A job that would otherwise have too few daemons takes this one nevertheless.
  a_.end = nullptr;
  const auto needed = peers->Recruit(Request(2, 1));
  ASSERT_TRUE(needed.ok()) << needed.status();
  EXPECT_THAT((*needed)->addresses(), ElementsAre(a_.address()));
}

TEST_F(GrpcPeersTest, AvoidsOneThatDidNotCome) {
  const auto peers = Peers();
  {
    const auto team = peers->Recruit(Request(2, 1));
    ASSERT_TRUE(team.ok()) << team.status();
    (*team)->Avoid(1);
  }
  const auto next = peers->Recruit(Request(2, 1));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT((*next)->addresses(), ElementsAre(b_.address()));
}

TEST_F(GrpcPeersTest, SendsNoDatasetWhereOthersAreEnough) {
  a_.answer = [] { return WithReason(absl::FailedPreconditionError("it lacks zinc"), train::kDatasetMissingReason); };
  train::RecruitRequest request = Request(3, 1);
  request.dataset_file = "/no/such/file";
  const auto peers = Peers();
  const auto team = peers->Recruit(request);
  ASSERT_TRUE(team.ok()) << team.status();
  EXPECT_THAT((*team)->addresses(), ElementsAre(b_.address()));
  EXPECT_THAT(log_, ElementsAre("does not join: " + a_.address() + ": it lacks zinc"));
  // A job that needs this daemon tries to copy the dataset to it, here in vain.
  request.least = 2;
  a_.calls = 0;
  const absl::Status few = peers->Recruit(request).status();
  EXPECT_EQ(GetReason(few).reason, train::kTooFewPeersReason) << few;
  EXPECT_THAT(std::string(few.message()), HasSubstr("cannot be copied"));
  EXPECT_EQ(a_.calls, 2) << "it is not asked a third time at once";
}

TEST_F(GrpcPeersTest, BlamesTheRankThatIsTheCause) {
  a_.end = [] { return WithReason(absl::UnavailableError("rank 2 has gone"), train::kRankLostReason); };
  b_.end = [] {
    absl::SleepFor(absl::Milliseconds(300));
    return WithReason(absl::FailedPreconditionError("the loss is of another type"), train::kRankFailedReason);
  };
  const auto peers = Peers();
  {
    const auto team = peers->Recruit(Request(3, 2));
    ASSERT_TRUE(team.ok()) << team.status();
    const absl::Status failed = AwaitFailure(**team);
    EXPECT_EQ(GetReason(failed).reason, train::kRankFailedReason) << failed;
    EXPECT_EQ(failed.message(), b_.address() + ": the loss is of another type");
  }
  a_.end = b_.end = nullptr;
  const auto next = peers->Recruit(Request(3, 0));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT((*next)->addresses(), ElementsAre(a_.address())) << "only the cause is avoided";
}

TEST_F(GrpcPeersTest, AQuestionIsAnsweredWithoutARank) {
  a_.answer = [] { return Busy(); };
  const auto peers = Peers();
  EXPECT_TRUE(peers->CanRecruit(Request(3, 1)));
  EXPECT_EQ(b_.questions, 1);
  EXPECT_EQ(b_.calls, 0);
  b_.answer = [] { return WithReason(absl::FailedPreconditionError("of another version"), "VERSION_DIFFERS"); };
  EXPECT_FALSE(peers->CanRecruit(Request(3, 1)));
  EXPECT_THAT(log_, ElementsAre("does not join: " + b_.address() + ": of another version"));
}

}  // namespace
}  // namespace permafrost::api
