// Tests the server as a whole: health, reflection, request metrics, ports and threads.
#include "api/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "google/rpc/error_details.pb.h"
#include "permafrost/v1/services.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A call whose messages are raw bytes, because health and reflection have no generated code here.
class RawCall {
 public:
  RawCall(grpc::Channel& channel, const std::string& method, const std::string& request) : RawCall(channel, method) {
    const grpc::Slice slice(request);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    Next();  // fails if the server has already refused the call
  }
  // Sends no request, so the stream stays open.
  RawCall(grpc::Channel& channel, const std::string& method)
      : stub_(std::shared_ptr<grpc::ChannelInterface>(&channel, [](auto*) {})) {
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    EXPECT_TRUE(Next());
  }
  // Sends one request and leaves the stream open. Returns false if the server has ended the call.
  bool Write(const std::string& request) {
    const grpc::Slice slice(request);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Next();
  }
  // Returns the next message, or null at the end.
  std::optional<std::string> Read() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, nullptr);
    if (!Next()) return std::nullopt;
    grpc::Slice slice;
    EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    EXPECT_TRUE(Next());
    return status;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  bool Next() {
    void* tag;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// The encodings of grpc.health.v1: field 1 of a request is the service, and field 1 of a response is the status.
std::string HealthRequest(const std::string& service) {
  return service.empty() ? "" : "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
}
constexpr char kServing[] = "\x08\x01";
constexpr char kNotServing[] = "\x08\x02";

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kListServices[] = "\x3a\x01*";  // request field 7

TEST_F(ServerTest, HealthCheckAndWatchTurnNotServing) {
  std::vector<std::string> services = {""};
  for (const auto* service : ContractServices()) services.push_back(service->full_name());
  const auto check = [&](const std::string& service) {
    RawCall call(*channel_, "/grpc.health.v1.Health/Check", HealthRequest(service));
    const auto response = call.Read();
    EXPECT_TRUE(call.Finish().ok());
    return response.value_or("no response");
  };
  for (const auto& service : services) EXPECT_EQ(check(service), kServing) << service;
  RawCall watch(*channel_, "/grpc.health.v1.Health/Watch", HealthRequest(services[1]));
  EXPECT_EQ(watch.Read(), kServing);
  server_->SetNotServing();
  EXPECT_EQ(watch.Read(), kNotServing);
  for (const auto& service : services) EXPECT_EQ(check(service), kNotServing) << service;
  watch.Cancel();
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// The check takes longer than the time that shutdown leaves for answers once all calls are done.
TEST_F(ServerTest, ACheckThatIsSlowIsAnsweredBeforeTheServerEnds) {
  absl::Notification asked, may_answer;
  before_status_ = [&](std::string_view method) {
    if (method != "Health/Check") return;
    asked.Notify();
    may_answer.WaitForNotification();
  };
  std::optional<std::string> response;
  grpc::Status status;
  std::thread client([&] {
    RawCall check(*channel_, "/grpc.health.v1.Health/Check", HealthRequest(""));
    response = check.Read();
    status = check.Finish();
  });
  asked.WaitForNotification();
  absl::Notification over;
  std::thread shutdown([&] {
    server_->Shutdown(kPatience);
    over.Notify();
  });
  EXPECT_FALSE(over.WaitForNotificationWithTimeout(absl::Seconds(1))) << "it waits for the check";
  may_answer.Notify();
  client.join();
  shutdown.join();
  EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
  EXPECT_TRUE(response.has_value());
}

class HealthLimitTest : public ServerTest {
 protected:
  HealthLimitTest() { limits_.health_watches = 2; }
};

TEST_F(HealthLimitTest, WatchesAreBounded) {
  const auto watch = [this] {
    return std::make_unique<RawCall>(*channel_, "/grpc.health.v1.Health/Watch", HealthRequest(""));
  };
  const auto first = watch();
  auto second = watch();
  EXPECT_EQ(first->Read(), kServing);
  EXPECT_EQ(second->Read(), kServing);
  const auto third = watch();
  EXPECT_FALSE(third->Read().has_value());
  const grpc::Status refused = third->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("2 health watches"));
  RawCall check(*channel_, "/grpc.health.v1.Health/Check", HealthRequest(""));
  EXPECT_EQ(check.Read(), kServing) << "a check is no watch";
  EXPECT_TRUE(check.Finish().ok());
  // The end of one watch frees its slot.
  second->Cancel();
  EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const Stopwatch waited;
  while (true) {
    const auto next = watch();
    const bool served = next->Read().has_value();
    next->Cancel();
    next->Finish();
    if (served) break;
    ASSERT_LT(waited.Elapsed(), kPatience) << "its slot never came back";
  }
}

TEST_F(ServerTest, ReflectionListsTheServices) {
  RawCall call(*channel_, kReflection, kListServices);
  const std::string response = call.Read().value_or("");
  EXPECT_THAT(response, AllOf(HasSubstr("permafrost.v1.JobService"), HasSubstr("permafrost.v1.GraphCacheService"),
                              HasSubstr("permafrost.v1.DatasetService"), HasSubstr("permafrost.v1.ServerService"),
                              HasSubstr("grpc.health.v1.Health")));
  EXPECT_FALSE(call.Read().has_value());
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(ServerTest, EveryCallIsCountedOnceByMethodAndCode) {
  jobs_.Run("a");
  v1::GetJobRequest get;
  v1::Job job;
  for (const char* name : {"jobs/a", "jobs/none", "bad"}) {
    grpc::ClientContext context;
    get.set_name(name);
    job_stub_->GetJob(&context, get, &job);
  }
  EXPECT_TRUE(counts_.Await("JobService/GetJob OK", 1));
  EXPECT_TRUE(counts_.Await("JobService/GetJob NOT_FOUND", 1));
  EXPECT_TRUE(counts_.Await("JobService/GetJob INVALID_ARGUMENT", 1));

  v1::WatchJobRequest watch;
  watch.set_name("jobs/a");
  {
    grpc::ClientContext context;
    auto reader = job_stub_->WatchJob(&context, watch);
    ASSERT_TRUE(reader->Read(&job));
    EXPECT_EQ(counts_.all().count("JobService/WatchJob OK"), 0u) << "a stream counts when it ends";
    const std::map<std::string, int> open = {{"JobService/WatchJob", 1}};
    EXPECT_EQ(OpenStreams(), open) << "and is open until then; calls are none";
    context.TryCancel();
    reader->Finish();
  }
  EXPECT_TRUE(counts_.Await("JobService/WatchJob CANCELLED", 1));
  jobs_.Succeed();
  jobs_.AwaitEnd("a");
  {
    grpc::ClientContext context;
    auto reader = job_stub_->WatchJob(&context, watch);
    while (reader->Read(&job)) {
    }
    reader->Finish();
  }
  EXPECT_TRUE(counts_.Await("JobService/WatchJob OK", 1));
  RawCall health(*channel_, "/grpc.health.v1.Health/Check", "");
  EXPECT_TRUE(health.Read().has_value());
  EXPECT_TRUE(health.Finish().ok());
  server_->Shutdown(kPatience);
  const std::map<std::string, int> want = {{"JobService/GetJob OK", 1},
                                           {"JobService/GetJob NOT_FOUND", 1},
                                           {"JobService/GetJob INVALID_ARGUMENT", 1},
                                           {"JobService/WatchJob CANCELLED", 1},
                                           {"JobService/WatchJob OK", 1},
                                           {"Health/Check OK", 1}};
  EXPECT_EQ(counts_.all(), want);
  const std::map<std::string, int> gone = {{"JobService/WatchJob", 0}};
  EXPECT_EQ(OpenStreams(), gone);
}

TEST_F(ServerTest, AMethodThatDoesNotExistMakesNoSeries) {
  for (const char* method : {"/permafrost.v1.JobService/Nope", "/x/y"}) {
    RawCall call(*channel_, method, "");
    EXPECT_FALSE(call.Read().has_value());
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  server_->Shutdown(kPatience);
  const std::map<std::string, int> want = {{"unknown UNIMPLEMENTED", 2}};
  EXPECT_EQ(counts_.all(), want);
}

TEST_F(ServerTest, ATakenPortIsRefused) {
  ServerOptions options;
  options.address = server_->address();
  const auto second = Server::Start(std::move(options), jobs_.manager(), jobs_.catalog());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), AllOf(HasSubstr(server_->address()), HasSubstr("in use")));
}

TEST_F(ServerTest, AForeignAddressIsRefused) {
  ServerOptions options;
  options.address = "192.0.2.1:0";  // TEST-NET-1, which no machine has
  const auto server = Server::Start(std::move(options), jobs_.manager(), jobs_.catalog());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("192.0.2.1:0: Cannot assign requested address"));
}

TEST_F(ServerTest, ARequestAboveTheLimitIsRefused) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(std::string(2 << 20, 'x'));
  v1::Job job;
  const grpc::Status status = job_stub_->GetJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("Received message larger than max")) << "gRPC's own text";
  EXPECT_FALSE(Detail<google::rpc::ErrorInfo>(status));
}

TEST_F(ServerTest, DestructionEndsOpenStreams) {
  jobs_.Create("a");
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/a");
  auto reader = job_stub_->WatchJob(&context, request);
  v1::Job job;
  ASSERT_TRUE(reader->Read(&job));
  server_.reset();
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_FALSE(reader->Finish().ok());
}

int CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// A watcher that needs no thread in the test either. It reads its first response and then waits for the end.
class IdleWatcher : public grpc::ClientReadReactor<v1::Job> {
 public:
  IdleWatcher(v1::JobService::Stub& stub, absl::BlockingCounter& started, absl::BlockingCounter& ended)
      : started_(started), ended_(ended) {
    request_.set_name("jobs/a");
    stub.async()->WatchJob(&context_, &request_, this);
    StartRead(&job_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (!std::exchange(has_started_, true)) started_.DecrementCount();
    last_ = job_.state();
    StartRead(&job_);
  }
  void OnDone(const grpc::Status& status) override {
    ok_ = status.ok();
    ended_.DecrementCount();
  }
  bool ended_well() const { return ok_ && last_ == v1::Job::STATE_SUCCEEDED; }

 private:
  grpc::ClientContext context_;
  v1::WatchJobRequest request_;
  v1::Job job_;
  v1::Job::State last_ = v1::Job::STATE_UNSPECIFIED;
  bool has_started_ = false, ok_ = false;
  absl::BlockingCounter& started_;
  absl::BlockingCounter& ended_;
};

TEST_F(ServerTest, AThousandIdleWatchersCostNoThreads) {
  if (!std::filesystem::exists("/proc/self/task")) GTEST_SKIP() << "threads are counted in /proc";
  constexpr int kWatchers = 1000;
  // gRPC's pools grow under load to a size that depends only on the machine. The first watchers make them grow.
  constexpr int kWarmUp = 100;
  jobs_.Run("a");
  std::vector<std::unique_ptr<IdleWatcher>> watchers;
  absl::BlockingCounter ended(kWarmUp + kWatchers);
  const auto add = [&](int count) {
    absl::BlockingCounter started(count);
    for (int i = 0; i < count; ++i) watchers.push_back(std::make_unique<IdleWatcher>(*job_stub_, started, ended));
    started.Wait();
  };
  add(kWarmUp);
  const int before = CountThreads();
  add(kWatchers);
  ASSERT_TRUE(jobs_.AwaitWatchers(kWarmUp + kWatchers));
  EXPECT_LE(CountThreads(), before + 4) << "before: " << before;
  jobs_.Succeed();
  ended.Wait();
  int ended_well = 0;
  for (const auto& watcher : watchers) ended_well += watcher->ended_well();
  EXPECT_EQ(ended_well, kWarmUp + kWatchers) << "each got the terminal state";
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
}

TEST_F(ServerTest, IdleReflectionStreamsCostFewThreadsAndHoldUpNoCalls) {
  if (!std::filesystem::exists("/proc/self/task")) GTEST_SKIP() << "threads are counted in /proc";
  constexpr int kStreams = 200;
  constexpr int kLimit = 8;
  jobs_.Create("a");
  const auto get = [&] {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return job_stub_->GetJob(&context, request, &job);
  };
  ASSERT_TRUE(get().ok());
  const int before = CountThreads();
  std::vector<std::unique_ptr<RawCall>> streams;
  int served = 0;
  for (int i = 0; i < kStreams; ++i) {
    auto stream = std::make_unique<RawCall>(*channel_, kReflection);
    if (stream->Write(kListServices) && stream->Read().has_value()) {
      ++served;
      streams.push_back(std::move(stream));
    } else {
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    }
  }
  EXPECT_GE(served, 1);
  EXPECT_LE(served, kLimit);
  EXPECT_LE(CountThreads(), before + kLimit + 4) << "before: " << before;
  EXPECT_TRUE(get().ok());
  for (auto& stream : streams) {
    stream->Cancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // A thread is free again once its handler has seen the end of its stream.
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    RawCall again(*channel_, kReflection, kListServices);
    while (again.Read().has_value()) {
    }
    const grpc::Status status = again.Finish();
    if (status.ok()) break;
    ASSERT_LT(absl::Now(), deadline) << "reflection never came back: " << status.error_message();
  }
}

}  // namespace
}  // namespace permafrost::api
