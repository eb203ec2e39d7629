// Tests calls that are repeated because their answer was lost.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

class RequestIdTest : public testing::Test {
 protected:
  // Copies the state directory as SIGKILL would leave it now, and returns the copy.
  std::filesystem::path Crash(const std::string& name) {
    const std::filesystem::path copy = dir_.path() / name;
    std::filesystem::copy(server_.state_dir(), copy, std::filesystem::copy_options::recursive);
    return copy;
  }

  const TempDir dir_;
  Server server_{dir_.path() / "state"};
  const JobId id_{"job-a"};
};

TEST_F(RequestIdTest, ADeletionIsAnsweredAgainAlsoByTheNextServer) {
  server_.Create("job-a");
  ASSERT_TRUE(server_->Cancel(id_, "cancel-1").ok());
  ASSERT_TRUE(server_->Delete(id_, "delete-1").ok());
  EXPECT_TRUE(server_->Delete(id_, "delete-1").ok());
  EXPECT_EQ(server_->Delete(id_).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_->Delete(id_, "delete-2").code(), absl::StatusCode::kNotFound);
  // A new job of the same id is not the one that the first call deleted.
  server_.Create("job-a");
  ASSERT_TRUE(server_->Cancel(id_).ok());
  Server later(Crash("after"));
  EXPECT_TRUE(later->Delete(id_, "delete-1").ok());
  EXPECT_EQ(later.Get("job-a").state, JobState::kCancelled);
}

TEST_F(RequestIdTest, AVerbThatComesAgainUndoesNothingThatCameAfterIt) {
  server_.Create("job-a");
  ASSERT_TRUE(server_->Pause(id_, "pause-1").ok());
  ASSERT_TRUE(server_->Resume(id_, "resume-1").ok());
  EXPECT_EQ(server_->Pause(id_, "pause-1")->state, JobState::kQueued) << "as it is now";
  ASSERT_TRUE(server_->Cancel(id_, "cancel-1").ok());
  EXPECT_TRUE(server_->Resume(id_, "resume-1").ok()) << "though it has ended since";
  ASSERT_TRUE(server_->Retry(id_, "retry-1").ok());
  EXPECT_EQ(server_->Cancel(id_, "cancel-1")->state, JobState::kQueued);
  ASSERT_TRUE(server_->Cancel(id_).ok());
  EXPECT_EQ(server_->Retry(id_, "retry-1")->state, JobState::kCancelled) << "it is retried once";
}

TEST_F(RequestIdTest, AnUpdateWithAnEtagIsAnsweredAgain) {
  const Job job = server_.Create("job-a");
  const JobUpdate update{.priority = 5, .etag = EtagOf(job)};
  ASSERT_TRUE(server_->Update(id_, update, "update-1").ok());
  const auto again = server_->Update(id_, update, "update-1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec.priority, 5);
  EXPECT_EQ(server_->Update(id_, update).status().code(), absl::StatusCode::kAborted) << "without an id";
  const auto other = server_->Update(id_, {.priority = 6}, "update-1");
  EXPECT_EQ(ReasonOf(other.status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(server_.Get("job-a").spec.priority, 5);
}

TEST_F(RequestIdTest, TheIdOfACreationOutlivesItsJob) {
  CreateRequest create = Server::Request("job-a");
  create.request_id = "create-1";
  ASSERT_TRUE(server_->Create(create).ok());
  ASSERT_TRUE(server_->Create(create).ok());
  EXPECT_EQ(ReasonOf(server_->Cancel(id_, "create-1").status()), "REQUEST_ID_REUSED");
  ASSERT_TRUE(server_->Cancel(id_).ok());
  ASSERT_TRUE(server_->Delete(id_).ok());
  Server later(Crash("after"));
  const auto again = later->Create(create);
  EXPECT_EQ(ReasonOf(again.status()), "JOB_NOT_FOUND") << again.status();
  EXPECT_THAT(again.status().message(), testing::HasSubstr("which was deleted since"));
  EXPECT_EQ(later->Get(id_).status().code(), absl::StatusCode::kNotFound) << "it is not made again";
  create.request_id = "create-2";
  EXPECT_TRUE(later->Create(create).ok());
}

TEST_F(RequestIdTest, ACreationIsTheSameByWhatWasAskedForOrByItsSpec) {
  CreateRequest create = Server::Request("job-a");
  create.request_id = "create-1";
  create.asked = "as written";
  ASSERT_TRUE(server_->Create(create).ok());
  CreateRequest read_otherwise = create;
  read_otherwise.spec.train.model.level = spec::ModelLevel::kNode;
  CreateRequest written_otherwise = create;
  written_otherwise.asked = "in other words";
  CreateRequest other = read_otherwise;
  other.asked = "in other words";
  // The next server answers in the same way. Equal specs count as the same request too, because an older version
  // stored no text.
  Server later(Crash("after"));
  for (Server* server : {&server_, &later}) {
    EXPECT_TRUE((*server)->FindCreated("create-1", "as written")->value().same);
    EXPECT_FALSE((*server)->FindCreated("create-1", "")->value().same);
    EXPECT_EQ((*server)->Create(read_otherwise)->spec.train.model.level, spec::ModelLevel::kGraph) << "as it was read";
    EXPECT_TRUE((*server)->Create(written_otherwise).ok());
    EXPECT_EQ(ReasonOf((*server)->Create(other).status()), "REQUEST_ID_REUSED");
  }
  EXPECT_FALSE(server_->FindCreated("create-2", "as written")->has_value());
  ASSERT_TRUE(server_->Cancel(id_, "cancel-1").ok());
  EXPECT_EQ(ReasonOf(server_->FindCreated("cancel-1", "as written").status()), "REQUEST_ID_REUSED");
  ASSERT_TRUE(server_->Delete(id_).ok());
  EXPECT_EQ(ReasonOf(server_->FindCreated("create-1", "as written").status()), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(server_->Create(other).status()), "JOB_NOT_FOUND");
}

TEST_F(RequestIdTest, AJobOfBeforeThereWereEdgeInputsIsTheSameOne) {
  server_.catalog().PutGraph("graph", {});
  CreateRequest create = Server::Request("job-a");
  create.request_id = "create-1";
  create.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  create.spec.train.dataset = DatasetId("graph");
  create.spec.train.model.edge_inputs = spec::EdgeInputs::kNone;  // as the job's record is read
  ASSERT_TRUE(server_->Create(create).ok());
  create.spec.train.model.edge_inputs = spec::EdgeInputs::kAuto;  // as the same call is read now
  const auto again = server_->Create(create);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec.train.model.edge_inputs, spec::EdgeInputs::kNone);
  create.id = JobId("job-b");
  create.request_id = "create-2";
  ASSERT_TRUE(server_->Create(create).ok());
  create.spec.train.model.edge_inputs = spec::EdgeInputs::kNone;
  EXPECT_EQ(ReasonOf(server_->Create(create).status()), "REQUEST_ID_REUSED") << "one that says so is another one";
}

TEST_F(RequestIdTest, AJobOfBeforeADefaultChangedIsTheSameOne) {
  server_.catalog().PutGraph("graph", {});
  CreateRequest create = Server::Request("job-a");
  create.request_id = "create-1";
  create.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  create.spec.train.dataset = DatasetId("graph");
  create.spec.train.nodes.fan_outs = {5, 5};
  const int64_t now = create.spec.train.nodes.look_ahead;
  create.spec.train.nodes.look_ahead = 8;  // the default of the older server
  ASSERT_TRUE(server_->Create(create).ok());
  create.spec.train.nodes.look_ahead = now;
  const auto again = server_->Create(create);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec.train.nodes.look_ahead, 8);
  create.spec.train.nodes.look_ahead = 9;
  EXPECT_EQ(ReasonOf(server_->Create(create).status()), "REQUEST_ID_REUSED") << "one that says so is another one";
}

TEST_F(RequestIdTest, ACallThatChangedNothingIsRememberedToo) {
  server_.Create("job-a");
  ASSERT_TRUE(server_->Update(id_, {.priority = 0}, "update-1").ok());
  ASSERT_TRUE(server_->Update(id_, {.priority = 7}).ok());
  EXPECT_EQ(server_->Update(id_, {.priority = 0}, "update-1")->spec.priority, 7);
  ASSERT_TRUE(server_->Cancel(id_).ok());
  ASSERT_TRUE(server_->Cancel(id_, "cancel-1").ok());
  ASSERT_TRUE(server_->Retry(id_).ok());
  EXPECT_EQ(server_->Cancel(id_, "cancel-1")->state, JobState::kQueued);
}

TEST_F(RequestIdTest, ACommandToACacheIsGivenOnce) {
  server_.Create("job-a");
  graphcache::Command policy;
  policy.kind = graphcache::CommandKind::kUpdatePolicy;
  policy.update.freeze_at = 7;
  std::vector<absl::StatusOr<graphcache::Snapshot>> answers;
  const auto give = [&](Server& server, const graphcache::Command& command, const std::string& request_id) {
    server->CommandGraphCache(id_, command, request_id, [&](auto answer) { answers.push_back(std::move(answer)); });
    return answers.back();
  };
  EXPECT_EQ(give(server_, policy, "one")->command_sequence, 1);
  EXPECT_EQ(give(server_, policy, "one")->command_sequence, 1);
  EXPECT_EQ(give(server_, policy, "two")->command_sequence, 2);
  Server later(Crash("after"));
  EXPECT_EQ(give(later, policy, "one")->command_sequence, 2) << "the cache as it is then";
  policy.update.freeze_at = 8;
  EXPECT_EQ(ReasonOf(give(later, policy, "one").status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(answers.size(), 5U);
}

TEST_F(RequestIdTest, AnIdIsOfOneCall) {
  server_.Create("job-a");
  server_.Create("job-b");
  ASSERT_TRUE(server_->Pause(id_, "one").ok());
  EXPECT_EQ(ReasonOf(server_->Resume(id_, "one").status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(ReasonOf(server_->Pause(JobId("job-b"), "one").status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(server_.Get("job-b").state, JobState::kQueued);
  EXPECT_THAT(FieldsOf(server_->Pause(id_, std::string(200, 'x')).status()), testing::ElementsAre("request_id"));
}

TEST_F(RequestIdTest, OnlyTheNewestAreKept) {
  const auto store = JobStore::Open(dir_.path() / "other.db");
  ASSERT_TRUE(store.ok());
  Job job = server_.Create("job-a");
  ASSERT_TRUE((*store)->Insert(job).ok());
  // Inserts all but the last two rows in one statement, because each call of the store would sync to disk.
  static_assert(JobStore::kMaxRequests == 10'000);
  SQLite::Database((dir_.path() / "other.db").string(), SQLite::OPEN_READWRITE, 5000)
      .exec(
          "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9998) "
          "INSERT INTO answered_requests (request_id, what) SELECT 'r' || i, 'pause' FROM n");
  ASSERT_TRUE((*store)->Update(job, {.id = "r9999", .what = "pause"}).ok());
  EXPECT_TRUE(*(*store)->IsAnswered({.id = "r0", .what = "pause"})) << "so many are kept";
  ASSERT_TRUE((*store)->Update(job, {.id = "r10000", .what = "pause"}).ok());
  EXPECT_FALSE(*(*store)->IsAnswered({.id = "r0", .what = "pause"}));
  EXPECT_TRUE(*(*store)->IsAnswered({.id = "r1", .what = "pause"}));
}

}  // namespace
}  // namespace permafrost::jobs
