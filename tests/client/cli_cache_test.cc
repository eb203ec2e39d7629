// Tests `permafrost cache` against a scripted server: what it sends, what it prints, and how it exits.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_caches.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class CacheCommandTest : public testing::Test {
 protected:
  std::vector<std::string> Command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "cache"});
    return arguments;
  }
  ProgramResult Run(std::vector<std::string> arguments) { return RunProgram(Command(std::move(arguments))); }
  // Sets the answer of GetJob. Commands call it to learn whether the job is waiting.
  void SetJob(const v1::Job& job) {
    fake_.jobs.get = [job](const v1::GetJobRequest&, v1::Job& response) {
      response = job;
      return grpc::Status::OK;
    };
  }

  FakeServer fake_;
};

TEST_F(CacheCommandTest, ShowTakesEverySpellingOfTheJob) {
  Recorder<std::string> names;
  fake_.caches.get = [&](const v1::GetGraphCacheRequest& request, v1::GraphCache& cache) {
    names.Add(request.name());
    cache = FrozenCache();
    return grpc::Status::OK;
  };
  fake_.Start();
  for (const char* job : {"zinc-1", "jobs/zinc-1", "jobs/zinc-1/graphCache"}) {
    const ProgramResult result = Run({"show", job});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("graph cache of job zinc-1\n  policy         freeze after 97 training shapes"));
    EXPECT_THAT(result.out, HasSubstr("\n  replayed padded            28,445  90.9 %"));
    EXPECT_THAT(result.out, Not(HasSubstr("\x1b"))) << "no colours where there is no terminal";
  }
  EXPECT_THAT(names.seen(), testing::Each("jobs/zinc-1/graphCache"));
  const json cache = json::parse(Run({"show", "zinc-1", "--output", "json"}).out);
  EXPECT_EQ(cache["name"], "jobs/zinc-1/graphCache");
  EXPECT_EQ(cache["freezeStep"], "106");
  EXPECT_EQ(cache["policy"]["freezeAt"], "0") << "present: derived";
  EXPECT_EQ(cache["statistics"][0]["frozenCaptures"], "0") << "fields at their default are there";
}

TEST_F(CacheCommandTest, ExplainIsAmongTheJobsCommands) {
  Recorder<std::string> names;
  fake_.caches.explain = [&](const v1::ExplainGraphCacheRequest& request, v1::ExplainGraphCacheResponse& response) {
    names.Add(request.name());
    response = Explanation();
    return grpc::Status::OK;
  };
  fake_.Start();
  const auto explain = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"--server", fake_.address(), "job", "explain", "zinc-1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  };
  const ProgramResult result = explain({});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nits matrix products alone         1.000 ms   50.0 %\n"));
  const json all = json::parse(explain({"--output", "json"}).out);
  EXPECT_EQ(all["profiles"][0]["operators"][1]["op"], "aten::mm");
  EXPECT_EQ(all["profiles"][0]["lines"][1]["forwardSeconds"], 0.00004);
  EXPECT_EQ(all["cache"]["capturesByCause"][1]["cause"], "GRAPH_CACHE_CAUSE_RESUME");
  EXPECT_THAT(names.seen(), testing::Each("jobs/zinc-1/graphCache"));
}

TEST_F(CacheCommandTest, ATerminalGetsColours) {
  fake_.caches.get = [](const v1::GetGraphCacheRequest&, v1::GraphCache& cache) {
    cache = FrozenCache();
    return grpc::Status::OK;
  };
  fake_.Start();
  TerminalProgram program(Command({"show", "zinc-1"}), {{"NO_COLOR", ""}});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.output(), HasSubstr("\x1b[32mfrozen since step 106"));
}

// Lists five entries in pages of two.
grpc::Status FiveEntries(const v1::ListGraphCacheEntriesRequest& request, v1::ListGraphCacheEntriesResponse& response) {
  const int first = request.page_token().empty() ? 0 : std::atoi(request.page_token().c_str());
  const int size = std::min(2, request.page_size());
  for (int i = first; i < std::min(5, first + size); ++i) {
    *response.add_entries() = SampleEntries()[0];
    response.mutable_entries()->rbegin()->mutable_shape()->set_nodes(700 + i);
  }
  if (first + size < 5) response.set_next_page_token(absl::StrCat(first + size));
  return grpc::Status::OK;
}

TEST_F(CacheCommandTest, EntriesFollowsPagesUpToTheLimit) {
  Recorder<v1::ListGraphCacheEntriesRequest> requests;
  fake_.caches.entries = [&](const v1::ListGraphCacheEntriesRequest& request,
                             v1::ListGraphCacheEntriesResponse& response) {
    requests.Add(request);
    return FiveEntries(request, response);
  };
  fake_.Start();
  const ProgramResult all = Run({"entries", "zinc-1"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, StartsWith("MODE   SHAPES  NODES  EDGES"));
  EXPECT_THAT(all.out, HasSubstr("\ntrain  one       704  1,630"));
  ASSERT_EQ(requests.seen().size(), 3u);
  EXPECT_EQ(requests.seen()[0].parent(), "jobs/zinc-1/graphCache");
  EXPECT_EQ(requests.seen()[2].page_token(), "4");
  const json some = json::parse(Run({"entries", "zinc-1", "--limit", "3", "--output", "json"}).out);
  ASSERT_EQ(some["entries"].size(), 3u);
  EXPECT_EQ(some["entries"][2]["shape"]["nodes"], "702");
  EXPECT_EQ(requests.seen().back().page_size(), 1) << "only what is missing";
}

TEST_F(CacheCommandTest, EntriesOfAnEmptyCacheIsALine) {
  fake_.caches.entries = [](const v1::ListGraphCacheEntriesRequest&, v1::ListGraphCacheEntriesResponse&) {
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_EQ(Run({"entries", "jobs/zinc-1"}).out, "the cache of job zinc-1 holds no executables\n");
}

TEST_F(CacheCommandTest, CommandsSayWhatTheyDidInOneLine) {
  Recorder<std::string> names;
  v1::GraphCache answer = FrozenCache();
  const auto tell = [&](const auto& request, v1::GraphCache& cache) {
    names.Add(request.name());
    cache = answer;
    return grpc::Status::OK;
  };
  fake_.caches.freeze = tell;
  fake_.caches.thaw = tell;
  fake_.caches.clear = tell;
  SetJob(RunningJob(1));
  fake_.Start();
  answer.set_command_step(106);
  EXPECT_EQ(Run({"freeze", "jobs/zinc-1"}).out, "cache of job zinc-1: frozen at step 106 (130 executables, 14.2 MB)\n");
  answer.set_command_step(1'312);
  EXPECT_EQ(Run({"freeze", "zinc-1"}).out, "cache of job zinc-1: frozen at step 106 (130 executables, 14.2 MB)\n")
      << "it was frozen before";
  EXPECT_EQ(Run({"clear", "zinc-1"}).out,
            "cache of job zinc-1: cleared at step 1,312, still frozen (130 executables, 14.2 MB)\n");
  answer.set_frozen(false);
  EXPECT_EQ(Run({"thaw", "zinc-1"}).out, "cache of job zinc-1: thawed at step 1,312 (130 executables, 14.2 MB)\n");
  EXPECT_EQ(Run({"clear", "zinc-1"}).out, "cache of job zinc-1: cleared at step 1,312 (130 executables, 14.2 MB)\n");
  EXPECT_EQ(json::parse(Run({"thaw", "zinc-1", "--output", "json"}).out)["commandStep"], "1312");
  EXPECT_THAT(names.seen(), testing::Each("jobs/zinc-1/graphCache"));
}

TEST_F(CacheCommandTest, OnAQueuedJobTheySayWhenTheyTakeEffect) {
  v1::GraphCache answer = WarmingCache();
  const auto tell = [&](const auto&, v1::GraphCache& cache) {
    cache = answer;
    return grpc::Status::OK;
  };
  fake_.caches.freeze = tell;
  fake_.caches.thaw = tell;
  fake_.caches.clear = tell;
  fake_.caches.policy = tell;
  SetJob(QueuedJob());
  fake_.Start();
  answer.set_command_step(300);
  EXPECT_EQ(Run({"freeze", "zinc-1"}).out,
            "cache of job zinc-1: to be frozen at step 300, where the job goes on (41 executables, 10.3 MB)\n");
  EXPECT_EQ(Run({"clear", "zinc-1"}).out,
            "cache of job zinc-1: to be cleared at step 300, where the job goes on (41 executables, 10.3 MB)\n");
  answer.set_frozen(true);
  EXPECT_EQ(Run({"thaw", "zinc-1"}).out,
            "cache of job zinc-1: to be thawed at step 300, where the job goes on (41 executables, 10.3 MB)\n");
  EXPECT_EQ(Run({"policy", "zinc-1", "--freeze-at", "derived"}).out,
            "cache of job zinc-1: from step 300 on: freeze after a number of training shapes derived from the dataset, "
            "on a miss: pad (41 executables, 10.3 MB)\n")
      << "the freeze point that the server knows is that of the policy before";
}

TEST_F(CacheCommandTest, PolicySendsOnlyWhatIsGiven) {
  Recorder<std::string> policies;
  fake_.caches.policy = [&](const v1::UpdateGraphCachePolicyRequest& request, v1::GraphCache& cache) {
    policies.Add(request.policy().ShortDebugString());
    cache = WarmingCache();
    cache.mutable_policy()->set_freeze_at(50);
    cache.set_command_step(312);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult all = Run({"policy", "zinc-1", "--policy", "freeze", "--freeze-at", "50", "--on-miss", "eager"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out,
            "cache of job zinc-1: from step 312 on: freeze after 50 training shapes, on a miss: pad (41 executables, "
            "10.3 MB)\n");
  Run({"policy", "zinc-1", "--freeze-at", "derived"});
  Run({"policy", "zinc-1", "--on-miss", "reject"});
  Run({"policy", "zinc-1", "--shapes", "exact"});
  Run({"policy", "zinc-1", "--shapes", "ladder", "--rungs", "4"});
  Run({"policy", "zinc-1", "--audit-every", "0"});
  Run({"policy", "zinc-1", "--no-strict"});
  Run({"policy", "zinc-1", "--max-executables", "8"});
  EXPECT_THAT(policies.seen(),
              ElementsAre("policy: POLICY_FREEZE freeze_at: 50 on_miss: ON_MISS_EAGER", "freeze_at: 0",
                          "on_miss: ON_MISS_REJECT", "shapes: SHAPES_EXACT", "shapes: SHAPES_LADDER rungs: 4",
                          "audit_every: 0", "strict: false", "max_executables: 8"));
}

TEST_F(CacheCommandTest, BadUsageNeedsNoServer) {
  const struct {
    const char* why;
    std::vector<std::string> arguments;
    std::string err;
  } kCases[] = {
      {"nothing to change",
       {"cache", "policy", "zinc-1"},
       "permafrost: nothing to change: give --policy, --freeze-at, --on-miss, --shapes, --rungs, --audit-every, "
       "--strict "
       "or --max-executables\n"},
      {"no such policy",
       {"cache", "policy", "zinc-1", "--policy", "sometimes"},
       "permafrost: --policy: 'sometimes'; accepted: always, never, clear-per-step, freeze (see permafrost cache "
       "policy "
       "--help)\n"},
      {"no job", {"cache", "freeze"}, "permafrost: JOB is required (see permafrost cache freeze --help)\n"},
      {"no such command", {"cache", "melt"}, "permafrost: 'melt' is not known here (see permafrost cache --help)\n"},
  };
  for (const auto& c : kCases) {
    const ProgramResult result = RunProgram(c.arguments);
    EXPECT_EQ(result.exit_code, 2) << c.why;
    EXPECT_EQ(result.err, c.err) << c.why;
    EXPECT_THAT(result.out, IsEmpty()) << c.why;
  }
}

TEST_F(CacheCommandTest, RefusalsAreTold) {
  fake_.caches.freeze = [](const v1::FreezeGraphCacheRequest&, v1::GraphCache&) {
    google::rpc::ErrorInfo info;
    info.set_reason("JOB_ENDED");
    return WithDetails(grpc::StatusCode::FAILED_PRECONDITION, "job zinc-1 has ended", {&info});
  };
  fake_.caches.get = [](const v1::GetGraphCacheRequest&, v1::GraphCache&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "job zinc-1 does not exist");
  };
  fake_.Start();
  const ProgramResult freeze = Run({"freeze", "zinc-1"});
  EXPECT_EQ(freeze.exit_code, 4);
  EXPECT_EQ(freeze.err, "permafrost: FAILED_PRECONDITION: job zinc-1 has ended\n");
  const json error = json::parse(Run({"freeze", "zinc-1", "--output", "json"}).err)["error"];
  EXPECT_EQ(error["reason"], "JOB_ENDED");
  const ProgramResult show = Run({"show", "zinc-1"});
  EXPECT_EQ(show.exit_code, 4);
  EXPECT_EQ(show.err, "permafrost: NOT_FOUND: job zinc-1 does not exist\n");
}

TEST_F(CacheCommandTest, ACommandThatIsNotAnsweredInTimeSaysThatItMayTakeEffectYet) {
  absl::Notification client_gave_up;
  fake_.caches.freeze = [&](const v1::FreezeGraphCacheRequest&, v1::GraphCache&) {
    client_gave_up.WaitForNotification();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"freeze", "zinc-1", "--timeout", "1"});
  client_gave_up.Notify();
  // The handler may begin only now, and it uses variables of this function.
  fake_.Stop();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err, "permafrost: no answer from " + fake_.address() +
                            " within 1s (wait longer with --timeout SECONDS); the command may take effect yet, see: "
                            "permafrost --server " +
                            fake_.address() + " cache show zinc-1\n");
}

using CacheWriter = grpc::ServerWriter<v1::GraphCache>;

grpc::Status WholeLife(const v1::WatchGraphCacheRequest&, CacheWriter& writer, grpc::ServerContext&) {
  writer.Write(NewCache());
  writer.Write(WarmingCache());
  v1::GraphCache cache = FrozenCache();
  writer.Write(cache);
  cache.set_frozen(false);
  cache.set_command_step(200);
  writer.Write(cache);
  cache.mutable_policy()->set_freeze_at(50);
  cache.set_command_step(300);
  writer.Write(cache);
  v1::GraphBreak& graph_break = *cache.add_graph_breaks();
  graph_break.set_op("aten::item");
  graph_break.set_why("a value is read back");
  writer.Write(cache);
  writer.Write(FrozenCache());
  return grpc::Status::OK;
}

TEST_F(CacheCommandTest, WatchIntoAPipeTellsWhatHappensThenTheStory) {
  fake_.caches.watch = WholeLife;
  fake_.Start();
  const ProgramResult result = Run({"watch", "zinc-1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out,
              StartsWith("frozen at step 106 (130 executables, 14.2 MB)\n"
                         "thawed at step 200 (130 executables, 14.2 MB)\n"
                         "from step 300 on: freeze after 50 training shapes, on a miss: pad\n"
                         "graph break at aten::item: a value is read back\n"
                         "from step 0 on: freeze after 97 training shapes (derived from the dataset), on a miss: pad\n"
                         "frozen at step 106 (130 executables, 14.2 MB)\n"
                         "\n"
                         "graph cache of job zinc-1\n"));
  EXPECT_THAT(result.out, HasSubstr("\n  state          frozen since step 106"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(CacheCommandTest, WatchInJsonIsOneObjectALine) {
  fake_.caches.watch = WholeLife;
  fake_.Start();
  const ProgramResult result = Run({"watch", "zinc-1", "--output", "json"});
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream lines(result.out);
  std::vector<bool> frozen;
  for (std::string line; std::getline(lines, line);) frozen.push_back(json::parse(line)["frozen"]);
  EXPECT_THAT(frozen, ElementsAre(false, false, true, false, false, false, true));
}

TEST_F(CacheCommandTest, WatchOnATerminalIsALiveLine) {
  absl::Notification line_seen;
  fake_.caches.watch = [&](const v1::WatchGraphCacheRequest&, CacheWriter& writer, grpc::ServerContext&) {
    writer.Write(WarmingCache());
    line_seen.WaitForNotification();
    writer.Write(FrozenCache());
    return grpc::Status::OK;
  };
  fake_.Start();
  TerminalProgram program(Command({"watch", "zinc-1"}));
  const bool seen = program.ReadUntil("\r\x1b[K41 of 97 shapes  ##########--------------   42%  2.4 % exact");
  line_seen.Notify();
  EXPECT_TRUE(seen) << program.output();
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.output(), HasSubstr("\r\x1b[Kfrozen at step 106 (130 executables, 14.2 MB)\r\n"));
  EXPECT_THAT(program.output(), HasSubstr("\r\x1b[K\r\ngraph cache of job zinc-1\r\n")) << "no live line is left";
}

TEST_F(CacheCommandTest, CtrlCLeavesTheJobRunningAndSaysHowToComeBack) {
  fake_.caches.watch = [](const v1::WatchGraphCacheRequest&, CacheWriter& writer, grpc::ServerContext& context) {
    writer.Write(WarmingCache());
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  fake_.Start();
  TerminalProgram program({"cache", "watch", "jobs/zinc-1"}, {{"PERMAFROST_SERVER", fake_.address()}});
  ASSERT_TRUE(program.ReadUntil("41 of 97 shapes")) << program.output();
  program.Type("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(program.output(),
              HasSubstr("\r\x1b[Kpermafrost: job zinc-1 goes on; come back with: permafrost cache watch zinc-1\r\n"));
}

}  // namespace
}  // namespace permafrost::client
