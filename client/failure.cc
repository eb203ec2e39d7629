#include "client/failure.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "client/format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

// gRPC's codes have the same numbers as Abseil's, and Abseil has the canonical names.
std::string CodeName(grpc::StatusCode code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(static_cast<int>(code)));
}

void AddDetails(const std::string& bytes, Failure& failure) {
  google::rpc::Status details;
  if (!details.ParseFromString(bytes)) return;
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& v : bad_request.field_violations()) failure.violations.push_back({v.field(), v.description()});
    } else if (any.UnpackTo(&info)) {
      failure.reason = info.reason();
      failure.metadata = {info.metadata().begin(), info.metadata().end()};
    }
  }
}

Failure Local(ExitCode exit, std::string_view code, std::string_view message) {
  Failure failure;
  failure.exit = exit;
  failure.code = code;
  failure.message = message;
  return failure;
}

}  // namespace

Failure RpcFailure(const grpc::Status& status, const CallContext& call) {
  if (!call.connected) return UnreachableFailure(call.address, call.tls, call.name);
  // Only a server attaches details. A status without details is the transport's own if its code is one that the
  // transport produces.
  const bool answered = !status.error_details().empty();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !answered) {
    return Local(ExitCode::kUnreachable, "UNREACHABLE",
                 absl::StrCat("no answer from ", call.address, " within ", EtaText(call.timeout),
                              " (wait longer with --timeout SECONDS)"));
  }
  Failure failure;
  failure.from_server = true;
  failure.code = CodeName(status.error_code());
  failure.message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !answered) failure.exit = ExitCode::kUnreachable;
  AddDetails(status.error_details(), failure);
  return failure;
}

Failure UnreachableFailure(std::string_view address, bool tls, std::string_view name) {
  if (tls) {
    return Local(ExitCode::kUnreachable, "UNREACHABLE",
                 absl::StrCat("no server at ", AbslView(address),
                              " that speaks TLS with a valid certificate of this name that --ca-cert vouches for, and "
                              "takes the client's (start permafrostd with --tls-cert, or see its certificate's date)"));
  }
  if (!name.empty()) {
    return Local(
        ExitCode::kUnreachable, "UNREACHABLE",
        absl::StrCat("no server at ", AbslView(address), " (start permafrostd there, or leave ", AbslView(name),
                     " out of --on; do not leave it out of a repeated command that has placed a job there)"));
  }
  return Local(
      ExitCode::kUnreachable, "UNREACHABLE",
      absl::StrCat("no server at ", AbslView(address),
                   " (start permafrostd, or name another with --server HOST:PORT, PERMAFROST_SERVER or --context)"));
}

Failure UsageFailure(std::string_view message) { return Local(ExitCode::kUsage, "USAGE", message); }

Failure LocalFileFailure(std::string_view message) { return Local(ExitCode::kLocalFile, "LOCAL_FILE", message); }

Failure EndedBadlyFailure(std::string_view message) { return Local(ExitCode::kEndedBadly, "ENDED_BADLY", message); }

Failure TimedOutFailure(std::string_view message) { return Local(ExitCode::kTimedOut, "TIMED_OUT", message); }

Failure FileFailure(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? UsageFailure(StdView(status.message()))
                                         : LocalFileFailure(StdView(status.message()));
}

std::string RenderText(const Failure& failure) {
  if (!failure.from_server) return absl::StrCat("permafrost: ", OneLine(failure.message), "\n");
  const std::string begin =
      absl::StrCat("permafrost: ", failure.code, ": ", OneLine(failure.server), failure.server.empty() ? "" : ": ");
  const auto& violations = failure.violations;
  std::string message = OneLine(failure.message);
  if (violations.size() < 2) return absl::StrCat(begin, message, "\n");
  // The server's one-line message lists all violations. Because each violation gets a line of its own below, the list
  // is left out of the message.
  if (std::all_of(violations.begin(), violations.end(),
                  [&](const FieldViolation& v) { return absl::StrContains(failure.message, v.description); })) {
    message = absl::StrCat(violations.size(), " fields are not valid");
  }
  std::string out = absl::StrCat(begin, message, "\n");
  for (const FieldViolation& v : violations)
    absl::StrAppend(&out, "  ", OneLine(v.field), ": ", OneLine(v.description), "\n");
  return out;
}

std::string RenderJson(const Failure& failure) {
  nlohmann::ordered_json error{{"code", failure.code}, {"message", failure.message}};
  error["exitCode"] = static_cast<int>(failure.exit);
  if (!failure.server.empty()) error["server"] = failure.server;
  if (!failure.reason.empty()) error["reason"] = failure.reason;
  if (!failure.metadata.empty()) error["metadata"] = failure.metadata;
  for (const FieldViolation& v : failure.violations)
    error["fieldViolations"].push_back({{"field", v.field}, {"description", v.description}});
  // The server's text may be invalid UTF-8, which must not make dump() throw.
  return nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false,
                                                       nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace permafrost::client
