#include "client/failure.h"

#include "client/fake_server.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

google::rpc::BadRequest BadFields(const std::vector<FieldViolation>& violations) {
  google::rpc::BadRequest bad_request;
  for (const FieldViolation& v : violations) {
    auto& wire = *bad_request.add_field_violations();
    wire.set_field(v.field);
    wire.set_description(v.description);
  }
  return bad_request;
}

google::rpc::ErrorInfo Info() {
  google::rpc::ErrorInfo info;
  info.set_reason("JOB_NOT_FOUND");
  (*info.mutable_metadata())["job"] = "x";
  return info;
}

const FieldViolation kEpochs{"spec.epochs", "-1 is outside 1..1,000,000"};
const FieldViolation kBatch{"spec.batch_size", "0.5 is no batch"};

TEST(Failure, OneLineForPeople) {
  google::rpc::BadRequest one = BadFields({kEpochs}), two = BadFields({kEpochs, kBatch});
  const CallContext here{"h:1", /*connected=*/true, absl::Seconds(10)};
  const CallContext nowhere{"h:1", /*connected=*/false, absl::Seconds(10)};
  const struct {
    const char* why;
    grpc::Status status;
    CallContext call;
    ExitCode exit;
    const char* text;
  } kCases[] = {
      {"as the server says it",
       {grpc::StatusCode::NOT_FOUND, "no job x"},
       here,
       ExitCode::kRefused,
       "permafrost: NOT_FOUND: no job x\n"},
      {"a server's line breaks and escapes do not reach the terminal",
       {grpc::StatusCode::INTERNAL, "a\nb\x1b[2J"},
       here,
       ExitCode::kRefused,
       "permafrost: INTERNAL: a b [2J\n"},
      {"one bad field: the message has it",
       WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "spec.epochs: -1 is outside 1..1,000,000", {&one}), here,
       ExitCode::kRefused, "permafrost: INVALID_ARGUMENT: spec.epochs: -1 is outside 1..1,000,000\n"},
      {"more: a line each, said once",
       WithDetails(grpc::StatusCode::INVALID_ARGUMENT,
                   "spec.epochs: -1 is outside 1..1,000,000; spec.batch_size: 0.5 is no batch", {&two}),
       here, ExitCode::kRefused,
       "permafrost: INVALID_ARGUMENT: 2 fields are not valid\n"
       "  spec.epochs: -1 is outside 1..1,000,000\n"
       "  spec.batch_size: 0.5 is no batch\n"},
      {"a message that says something else stays",
       WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "the job cannot run", {&two}), here, ExitCode::kRefused,
       "permafrost: INVALID_ARGUMENT: the job cannot run\n"
       "  spec.epochs: -1 is outside 1..1,000,000\n"
       "  spec.batch_size: 0.5 is no batch\n"},
      {"no server",
       {grpc::StatusCode::UNAVAILABLE, "failed to connect to all addresses"},
       nowhere,
       ExitCode::kUnreachable,
       "permafrost: no server at h:1 (start permafrostd, or name another with --server HOST:PORT, "
       "PERMAFROST_SERVER or --context)\n"},
      {"a server that hangs",
       {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"},
       here,
       ExitCode::kUnreachable,
       "permafrost: no answer from h:1 within 10s (wait longer with --timeout SECONDS)\n"},
      {"a server that dies during the call",
       {grpc::StatusCode::UNAVAILABLE, "Socket closed"},
       here,
       ExitCode::kUnreachable,
       "permafrost: UNAVAILABLE: Socket closed\n"},
      {"a server that answers that it drains", WithDetails(grpc::StatusCode::UNAVAILABLE, "the server drains", {&one}),
       here, ExitCode::kRefused, "permafrost: UNAVAILABLE: the server drains\n"},
  };
  for (const auto& c : kCases) {
    const Failure failure = RpcFailure(c.status, c.call);
    EXPECT_EQ(failure.exit, c.exit) << c.why;
    EXPECT_EQ(RenderText(failure), c.text) << c.why;
  }
}

TEST(Failure, OneObjectForPrograms) {
  google::rpc::BadRequest two = BadFields({kEpochs, kBatch});
  google::rpc::ErrorInfo info = Info();
  const Failure failure = RpcFailure(WithDetails(grpc::StatusCode::NOT_FOUND, "no \"x\"\n", {&two, &info}), {"h:1"});
  const std::string text = RenderJson(failure);
  EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line";
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({"error": {
    "code": "NOT_FOUND", "message": "no \"x\"\n", "exitCode": 4, "reason": "JOB_NOT_FOUND", "metadata": {"job": "x"},
    "fieldViolations": [
      {"field": "spec.epochs", "description": "-1 is outside 1..1,000,000"},
      {"field": "spec.batch_size", "description": "0.5 is no batch"}]}})"));
}

TEST(Failure, BytesThatAreNoUtf8DoNotThrow) {
  const Failure failure = RpcFailure({grpc::StatusCode::INTERNAL, "\xff\xfe"}, {"h:1"});
  EXPECT_EQ(nlohmann::json::parse(RenderJson(failure))["error"]["code"], "INTERNAL");
}

TEST(Failure, DetailsThatDoNotParseAreLeftOut) {
  const Failure failure = RpcFailure({grpc::StatusCode::NOT_FOUND, "no job", "\xff\xff garbage"}, {"h:1"});
  EXPECT_EQ(RenderText(failure), "permafrost: NOT_FOUND: no job\n");
}

TEST(Failure, BadContentOfAFileIsBadUsage) {
  EXPECT_EQ(FileFailure(absl::InvalidArgumentError("job.yaml:2: ...")).exit, ExitCode::kUsage);
  EXPECT_EQ(FileFailure(absl::NotFoundError("job.yaml")).exit, ExitCode::kLocalFile);
  EXPECT_EQ(FileFailure(absl::DataLossError("x")).exit, ExitCode::kLocalFile);
}

}  // namespace
}  // namespace permafrost::client
