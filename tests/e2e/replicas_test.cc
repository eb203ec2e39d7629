// Tests jobs that several real daemons train together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/file.h"
#include "base/hash.h"
#include "certificates.h"
#include "e2e/daemon.h"
#include "e2e/ogb_nodes.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

class ReplicasTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(ShippedSample(), data_ / "zinc", fs::copy_options::recursive);
    b_ = Start("b", {});
    c_ = Start("c", {});
    ASSERT_TRUE(b_->ready() && c_->ready());
    peers_ = {"--peers", b_->grpc() + "," + c_->grpc(), "--peer-timeout", "2"};
    a_ = Start("a", peers_);
    ASSERT_TRUE(a_->ready());
    for (Daemon* daemon : {a_.get(), b_.get(), c_.get()}) daemon->Import("zinc", data_ / "zinc");
  }
  std::unique_ptr<Daemon> Start(const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--listen", "127.0.0.1:0"});
    return std::make_unique<Daemon>(dir_.path() / name, data_, flags);
  }
  // Starts a new daemon at the address of `daemon`, which was killed, and replaces it.
  void Restart(std::unique_ptr<Daemon>& daemon, const std::string& name, std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--listen", daemon->grpc()});
    daemon = std::make_unique<Daemon>(dir_.path() / name, data_, flags);
    ASSERT_TRUE(daemon->ready());
  }
  static void Kill(Daemon& daemon) {
    daemon.process().Signal(SIGKILL);
    ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Output Submit(const std::string& id, int replicas, int epochs, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"job",
                                       "submit",
                                       "--id",
                                       id,
                                       "--dataset",
                                       "zinc",
                                       "--hidden",
                                       "16",
                                       "--batch-size",
                                       "250",
                                       "--epochs",
                                       std::to_string(epochs),
                                       "--replicas",
                                       std::to_string(replicas),
                                       "--checkpoint-every",
                                       "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return a_->Client(arguments);
  }
  std::string Weights(const std::string& job) { return a_->LastWeights(job, dir_.path() / (job + ".safetensors")); }
  std::string Log(const std::string& job) { return a_->Client({"job", "logs", job}).out; }
  // Returns the content checksum of a READY dataset. Empty if there is none.
  static std::string Checksum(Daemon& daemon, const std::string& name) {
    grpc::ClientContext context;
    v1::GetDatasetRequest request;
    request.set_name("datasets/" + name);
    v1::Dataset dataset;
    EXPECT_TRUE(daemon.datasets().GetDataset(&context, request, &dataset).ok());
    return dataset.content_checksum();
  }
  // Waits until the job's log contains `text`.
  void AwaitLog(const std::string& job, const std::string& text) {
    ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] { return absl::StrContains(Log(job), text); })) << Log(job);
  }

  const TempDir dir_, more_;
  const fs::path data_ = more_.path();
  std::unique_ptr<Daemon> a_, b_, c_;
  std::vector<std::string> peers_;
};

TEST_F(ReplicasTest, TrainAsOneDaemonDoes) {
  const std::vector<std::string> plain{"--optimizer", "sgd", "--lr", "0.001"};
  ASSERT_EQ(Submit("one", 1, 2, plain).code, 0);
  ASSERT_EQ(Submit("three", 3, 2, plain).code, 0);
  ASSERT_EQ(Submit("again", 3, 2, plain).code, 0);
  for (const char* job : {"one", "three", "again"}) a_->AwaitEnd(job);
  const v1::Job one = a_->Get("one"), three = a_->Get("three");
  ASSERT_EQ(three.state(), v1::Job::STATE_SUCCEEDED) << three.error();
  ASSERT_EQ(three.epochs_size(), 2);
  for (int e = 0; e < 2; ++e) {
    EXPECT_NEAR(three.epochs(e).train_loss(), one.epochs(e).train_loss(), 1e-4);
    EXPECT_NEAR(three.epochs(e).valid_loss(), one.epochs(e).valid_loss(), 1e-3);
  }
  EXPECT_EQ(Weights("three"), Weights("again")) << "equal worlds give equal bits";
  EXPECT_EQ(three.spec().replicas(), 3);
  EXPECT_THAT(Log("three"), HasSubstr("trains on 3 daemons: this one and " + b_->grpc() + ", " + c_->grpc()));
  // Only the leader reports the exchange.
  const v1::Exchange& exchange = three.progress().exchange();
  EXPECT_EQ(exchange.replicas(), 3);
  EXPECT_GT(exchange.exchanges(), 2 * 40);
  EXPECT_GT(exchange.sent_bytes(), 0);
  const std::string page = HttpGet(a_->metrics(), "/metrics");
  EXPECT_GT(Metric(page, "permafrost_train_exchanged_bytes_total"), static_cast<double>(exchange.sent_bytes()));
  EXPECT_GT(Metric(page, "permafrost_train_exchange_seconds_total"), 0);
  EXPECT_THAT(a_->Client({"job", "show", "three"}).out, HasSubstr("with 2 other daemons, "));
  EXPECT_THAT(a_->Client({"job", "show", "three"}).out, HasSubstr("ms each to compute and "));
  ASSERT_EQ(exchange.ranks_size(), 3);
  for (const v1::RankProgress& rank : exchange.ranks()) EXPECT_EQ(rank.steps(), 2 * 40) << rank.address();
  EXPECT_EQ(exchange.ranks(2).address(), c_->grpc());
  EXPECT_GT(Metric(page, "permafrost_train_rank_seconds_total{rank=\"0\"}"), 0);
  EXPECT_THAT(a_->Client({"job", "show", "three"}).out, HasSubstr("(the leader's share)"));
  EXPECT_EQ(b_->Client({"job", "list", "--output", "json"}).out.find("three"), std::string::npos);
}

// Only the leader has the dataset. One peer was killed in the middle of a copy.
TEST_F(ReplicasTest, APeerThatLacksTheDatasetGetsACopy) {
  ASSERT_EQ(a_->Import("few", data_ / "zinc").content_checksum(), Checksum(*b_, "zinc"));
  const std::string store = *ReadFile(dir_.path() / "a" / "datasets" / "few" / "graphs.pfg");
  const std::string half = store.substr(0, std::min(store.size() / 2, size_t{1} << 19));
  grpc::ClientContext context;
  v1::Upload upload;
  const auto writer = b_->datasets().UploadDataset(&context, &upload);
  v1::UploadDatasetRequest request;
  v1::UploadStart& start = *request.mutable_start();
  start.set_name("uploads/copy-" + HashHex(Hash64(store)));
  v1::UploadStart::File& file = *start.add_files();
  file.set_path("graphs.pfg");
  file.set_bytes(static_cast<int64_t>(store.size()));
  file.set_xxh3(HashHex(Hash64(store)));
  ASSERT_TRUE(writer->Write(request));
  request.mutable_chunk()->set_data(half);
  request.mutable_chunk()->set_xxh3(Hash64(half));
  ASSERT_TRUE(writer->Write(request));
  ASSERT_TRUE(writer->WritesDone() && writer->Finish().ok());
  Kill(*b_);
  Restart(b_, "b");

  ASSERT_EQ(Submit("imported", 3, 1).code, 0);
  ASSERT_EQ(a_->Client({"job", "submit", "--id", "copied", "--dataset", "few", "--hidden", "16", "--batch-size", "250",
                        "--epochs", "1", "--replicas", "3"})
                .code,
            0);
  for (const char* job : {"imported", "copied"}) {
    const v1::Job ended = a_->AwaitEnd(job);
    ASSERT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.error() << Log(job);
  }
  EXPECT_THAT(Log("copied"), ContainsRegex("copies dataset few \\([0-9.]+ MB\\) to " + b_->grpc() + ", which has"));
  for (Daemon* peer : {b_.get(), c_.get()}) {
    EXPECT_THAT(Log("copied"), HasSubstr("copied dataset few to " + peer->grpc() + " in "));
    EXPECT_EQ(Checksum(*peer, "few"), Checksum(*a_, "few"));
    EXPECT_THAT(peer->Client({"upload", "list"}).out, HasSubstr("no uploads"));
  }
  const v1::Job imported = a_->Get("imported"), copied = a_->Get("copied");
  ASSERT_EQ(copied.epochs_size(), 1);
  EXPECT_EQ(copied.epochs(0).train_loss(), imported.epochs(0).train_loss());
  EXPECT_EQ(copied.epochs(0).valid_loss(), imported.epochs(0).valid_loss());
  EXPECT_EQ(Weights("copied"), Weights("imported"));
}

// The module contains batch norms, and only the leader imported it.
TEST_F(ReplicasTest, TrainAUsersModuleAsOneDaemonDoes) {
  if (!ExportModule("cg", more_.path())) GTEST_SKIP() << "PERMAFROST_TEST_PYTHON has no torch_geometric";
  ASSERT_EQ(a_->Client({"program", "import", "cg", (more_.path() / "cg.pt2").string()}).code, 0);
  const auto submit = [&](const std::string& id, int replicas, const std::string& policy) {
    const Output out = a_->Client({"job",
                                   "submit",
                                   "--id",
                                   id,
                                   "--program",
                                   "cg",
                                   "--dataset",
                                   "zinc",
                                   "--batch-size",
                                   "9999",
                                   "--epochs",
                                   "2",
                                   "--optimizer",
                                   "sgd",
                                   "--lr",
                                   "0.001",
                                   "--cache-policy",
                                   policy,
                                   "--replicas",
                                   std::to_string(replicas)});
    ASSERT_EQ(out.code, 0) << out.err;
  };
  // The last batch has one of the 10,000 training graphs, so two ranks have none.
  submit("one", 1, "freeze");
  submit("three", 3, "freeze");
  submit("eager", 3, "never");
  a_->AwaitEnd("one");
  const v1::Job one = a_->Get("one");
  for (const char* id : {"three", "eager"}) {
    a_->AwaitEnd(id);
    const v1::Job several = a_->Get(id);
    ASSERT_EQ(several.state(), v1::Job::STATE_SUCCEEDED) << several.error();
    ASSERT_EQ(several.epochs_size(), 2);
    for (int e = 0; e < 2; ++e) {
      EXPECT_NEAR(several.epochs(e).train_loss(), one.epochs(e).train_loss(), 1e-3) << id;
      EXPECT_NEAR(several.epochs(e).valid_loss(), one.epochs(e).valid_loss(), 1e-3) << id;
    }
  }
}

TEST_F(ReplicasTest, TrainOnALargeGraphAndSurviveAKill) {
  WriteOgbNodes(data_ / "nodes", 3000);
  for (Daemon* daemon : {a_.get(), b_.get(), c_.get()}) daemon->Import("nodes", data_ / "nodes");
  const auto submit = [&](const std::string& id, const std::string& epochs) {
    const Output out =
        a_->Client({"job", "submit", "--id", id, "--dataset", "nodes", "--fan-out", "5", "3", "--batch-size", "100",
                    "--hidden", "16", "--epochs", epochs, "--replicas", "3", "--checkpoint-every", "10"});
    ASSERT_EQ(out.code, 0) << out.err;
  };
  submit("whole", "30");
  ASSERT_EQ(a_->AwaitEnd("whole").state(), v1::Job::STATE_SUCCEEDED);
  submit("killed", "30");
  a_->AwaitEpoch("killed", 2);
  Kill(*b_);
  AwaitLog("killed", "goes on from its newest checkpoint");
  Restart(b_, "b");
  a_->AwaitEnd("killed");
  const v1::Job job = a_->Get("killed");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_GT(job.result().best_test_metric(), 0.5) << "of four kinds";
  EXPECT_EQ(job.progress().exchange().replicas(), 3);
  EXPECT_EQ(Weights("killed"), Weights("whole"));
}

TEST_F(ReplicasTest, AnyKillEndsWithTheSameWeights) {
  ASSERT_EQ(Submit("whole", 3, 40).code, 0);
  ASSERT_EQ(a_->AwaitEnd("whole").state(), v1::Job::STATE_SUCCEEDED);
  ASSERT_EQ(Submit("killed", 3, 40).code, 0);
  a_->AwaitEpoch("killed", 2);
  Kill(*b_);
  AwaitLog("killed", "goes on from its newest checkpoint");
  Restart(b_, "b");
  a_->AwaitEpoch("killed", 10);
  Kill(*a_);
  // The other daemons are free again, although nobody told them that the leader died.
  ASSERT_TRUE(WaitUntil(absl::Seconds(10), [&] {
    return absl::StrContains(
        c_->Client({"job", "submit", "--id", "own", "--dataset", "zinc", "--epochs", "1", "--watch"}).out, "succeeded");
  }));
  Restart(a_, "a", peers_);
  a_->AwaitEpoch("killed", 20);
  Kill(*c_);
  Restart(c_, "c");
  const v1::Job job = a_->AwaitEnd("killed");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_GE(job.resumes(), 1) << "the leader died";
  EXPECT_EQ(Weights("killed"), Weights("whole"));
}

TEST_F(ReplicasTest, AnElasticJobGoesOnWithWhatIsLeftAndTakesInWhatComes) {
  ASSERT_EQ(Submit("job", 3, 100'000, {"--min-replicas", "1"}).code, 0);
  a_->AwaitEpoch("job", 2);
  EXPECT_THAT(a_->Client({"job", "show", "job"}).out, HasSubstr("1 to 3 daemons"));
  Kill(*b_);
  AwaitLog("job", "trains on 2 daemons: this one and " + c_->grpc());
  Kill(*c_);
  AwaitLog("job", "trains alone until other daemons are free");
  Restart(c_, "c");
  AwaitLog("job", "another daemon is free: the job goes on with it");
  ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] { return a_->Get("job").progress().exchange().replicas() == 2; }));
  const v1::Job job = a_->Get("job");
  EXPECT_EQ(job.state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(job.resumes(), 0) << "it kept its device: " << Log("job");
  EXPECT_EQ(a_->Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(a_->AwaitEnd("job").state(), v1::Job::STATE_CANCELLED);
  const Output refused = Submit("wrong", 2, 1, {"--min-replicas", "3"});
  EXPECT_THAT(refused.err, HasSubstr("min_replicas: 3 is given with replicas 2; accepted: 0 to 2"));
}

TEST_F(ReplicasTest, ADaemonThatDoesNotAnswerIsNamedAndWaitedFor) {
  ASSERT_EQ(Submit("job", 2, 400).code, 0);
  a_->AwaitEpoch("job", 2);
  b_->process().Signal(SIGSTOP);
  AwaitLog("job", "rank 1 (127.0.0.1) has not answered for 2s");
  // The other peer takes the place of the one that does not answer.
  AwaitLog("job", "this one and " + c_->grpc());
  b_->process().Signal(SIGCONT);
  EXPECT_EQ(a_->Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(a_->AwaitEnd("job").state(), v1::Job::STATE_CANCELLED);
}

// The peer requires a certificate and a token. The leader has both at first, and later lacks one of them.
TEST_F(ReplicasTest, PeersMayWantTlsACertificateAndAToken) {
  const auto path = [this](const std::string& name) { return (more_.path() / name).string(); };
  const TestAuthority authority("lab");
  authority.WriteAuthority(path("ca.pem"));
  for (const char* name : {"peer", "leader"}) authority.Issue(path(name), name);
  const std::unique_ptr<Daemon> peer = Start("safe", {"--auth", "token", "--tls-cert", path("peer.pem"), "--tls-key",
                                                      path("peer.key"), "--tls-client-ca", path("ca.pem")});
  ASSERT_TRUE(peer->ready());
  const std::string socket = "unix:" + (dir_.path() / "safe" / "permafrost.sock").string();
  const Output made = RunCommand(
      {PERMAFROST, "--server", socket, "server", "token", "create", "--role", "operator", "--to", path("token")});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::vector<std::string> tls{"--peers", peer->grpc(), "--peer-ca", path("ca.pem")};
  const auto restart_leader = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), tls.begin(), tls.end());
    ASSERT_EQ(a_->Stop(), 0);
    Restart(a_, "a", flags);
  };
  const std::vector<std::string> certificate{"--peer-cert", path("leader.pem"), "--peer-key", path("leader.key")};
  restart_leader(certificate);
  ASSERT_EQ(Submit("job", 2, 1).code, 0);
  AwaitLog("job", peer->grpc() + ": no token");
  restart_leader({"--peer-token-file", path("token")});
  AwaitLog("job", peer->grpc() + ": failed to connect");
  std::vector<std::string> all = certificate;
  all.insert(all.end(), {"--peer-token-file", path("token")});
  restart_leader(all);
  const v1::Job job = a_->AwaitEnd("job");
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error() << Log("job");
  EXPECT_THAT(Log("job"), HasSubstr("copied dataset zinc to " + peer->grpc()));
}

TEST_F(ReplicasTest, APeerThatIsTheLeaderItselfIsNamed) {
  const std::string port = a_->grpc().substr(a_->grpc().find(':'));
  ASSERT_EQ(a_->Stop(), 0);
  Restart(a_, "a", {"--peers", "localhost" + port});
  ASSERT_EQ(Submit("job", 2, 1).code, 0);
  AwaitLog("job", "localhost" + port + ": this is the leader itself, under another name");
}

TEST_F(ReplicasTest, AJobWaitsForDaemonsThatAreBusyOrHoldOtherData) {
  ASSERT_EQ(b_->Client({"job", "submit", "--id", "own", "--dataset", "zinc", "--epochs", "10000"}).code, 0);
  b_->AwaitEpoch("own", 2);
  ASSERT_EQ(Submit("job", 3, 1).code, 0);
  AwaitLog("job", "the job wants 2 other daemons, and 1 joins; " + b_->grpc() + ": it trains another job or rank");
  EXPECT_EQ(b_->Client({"job", "cancel", "own"}).code, 0);
  EXPECT_EQ(a_->AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);

  a_->Import("other", data_ / "zinc");
  const std::vector<std::string> differently{"dataset",         "import", "other", (data_ / "zinc").string(),
                                             "--inverse-edges", "keep"};
  ASSERT_EQ(b_->Client(differently).code, 0);
  const std::string others = Checksum(*b_, "other");
  ASSERT_EQ(a_->Client({"job", "submit", "--id", "lonely", "--dataset", "other", "--replicas", "3"}).code, 0);
  AwaitLog("lonely", b_->grpc() + ": dataset other holds other data here");
  EXPECT_EQ(a_->Client({"job", "cancel", "lonely"}).code, 0);
  EXPECT_EQ(Checksum(*b_, "other"), others);

  const Output refused = Submit("many", 4, 1);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("4: this server and its --peers are 3 daemons; accepted: 1 to 3"));
}

}  // namespace
}  // namespace permafrost::e2e
