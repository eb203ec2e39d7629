#include "access/gate.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::access {
namespace {

constexpr MethodRule Reads(std::string_view path) { return {.path = path, .least = Role::kViewer, .changes = false}; }
constexpr MethodRule Changes(std::string_view path, Role least) {
  return {.path = path, .least = least, .changes = true};
}
// Load balancers and probes have no token.
constexpr MethodRule Open(std::string_view path) { return {.path = path, .least = std::nullopt, .changes = false}; }

constexpr MethodRule kRules[] = {
    Reads("/permafrost.v1.CensusService/CensusGraphCache"),
    Changes("/permafrost.v1.DatasetService/DeleteDataset", Role::kOperator),
    Changes("/permafrost.v1.DatasetService/DeleteUpload", Role::kOperator),
    Reads("/permafrost.v1.DatasetService/GetDataset"),
    Changes("/permafrost.v1.DatasetService/ImportDataset", Role::kOperator),
    Reads("/permafrost.v1.DatasetService/ListDatasets"),
    Reads("/permafrost.v1.DatasetService/ListUploads"),
    Reads("/permafrost.v1.DatasetService/PlanDataset"),
    Reads("/permafrost.v1.DatasetService/SampleDataset"),
    Changes("/permafrost.v1.DatasetService/UploadDataset", Role::kOperator),
    Reads("/permafrost.v1.DatasetService/VerifyDataset"),
    Reads("/permafrost.v1.DatasetService/WatchDataset"),
    Changes("/permafrost.v1.GraphCacheService/ClearGraphCache", Role::kOperator),
    Reads("/permafrost.v1.GraphCacheService/ExplainGraphCache"),
    Changes("/permafrost.v1.GraphCacheService/FreezeGraphCache", Role::kOperator),
    Reads("/permafrost.v1.GraphCacheService/GetGraphCache"),
    Reads("/permafrost.v1.GraphCacheService/ListGraphCacheEntries"),
    Changes("/permafrost.v1.GraphCacheService/ThawGraphCache", Role::kOperator),
    Changes("/permafrost.v1.GraphCacheService/UpdateGraphCachePolicy", Role::kOperator),
    Reads("/permafrost.v1.GraphCacheService/WatchGraphCache"),
    Changes("/permafrost.v1.JobService/CancelJob", Role::kOperator),
    Changes("/permafrost.v1.JobService/CreateJob", Role::kOperator),
    Changes("/permafrost.v1.JobService/DeleteJob", Role::kOperator),
    // It takes the device, or cores, from the jobs.
    {.path = "/permafrost.v1.JobService/EvaluateJob", .least = Role::kOperator, .changes = false},
    Reads("/permafrost.v1.JobService/ExportJob"),
    Reads("/permafrost.v1.JobService/GetJob"),
    Reads("/permafrost.v1.JobService/ListCheckpoints"),
    Reads("/permafrost.v1.JobService/ListJobs"),
    Changes("/permafrost.v1.JobService/PauseJob", Role::kOperator),
    Changes("/permafrost.v1.JobService/ResumeJob", Role::kOperator),
    Changes("/permafrost.v1.JobService/RetryJob", Role::kOperator),
    Reads("/permafrost.v1.JobService/StreamJobLogs"),
    Changes("/permafrost.v1.JobService/UpdateJob", Role::kOperator),
    Reads("/permafrost.v1.JobService/WatchJob"),
    Reads("/permafrost.v1.PlanService/PlanGraphCache"),
    Changes("/permafrost.v1.ProgramService/DeleteProgram", Role::kOperator),
    Reads("/permafrost.v1.ProgramService/GetProgram"),
    Reads("/permafrost.v1.ProgramService/ListPrograms"),
    Changes("/permafrost.v1.ProgramService/UploadProgram", Role::kOperator),
    Changes("/permafrost.v1.ServerService/Backup", Role::kAdmin),
    Changes("/permafrost.v1.ServerService/ConfirmClock", Role::kAdmin),
    Changes("/permafrost.v1.ServerService/CreateToken", Role::kAdmin),
    Changes("/permafrost.v1.ServerService/Drain", Role::kAdmin),
    Reads("/permafrost.v1.ServerService/GetServerInfo"),
    // An operator need not know who else has a token.
    {.path = "/permafrost.v1.ServerService/ListTokens", .least = Role::kAdmin, .changes = false},
    Changes("/permafrost.v1.ServerService/RevokeToken", Role::kAdmin),
    Reads("/permafrost.v1.ServerService/WatchServer"),
    Changes("/permafrost.v1.WorkerService/RunRank", Role::kOperator),
    Open("/grpc.health.v1.Health/Check"),
    Open("/grpc.health.v1.Health/Watch"),
    Reads("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    Reads("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
};

}  // namespace

std::span<const MethodRule> MethodRules() { return kRules; }

MethodRule RuleOf(std::string_view path) {
  const auto* const found = std::ranges::find(kRules, path, &MethodRule::path);
  return found == std::end(kRules) ? Reads(path) : *found;
}

namespace {

constexpr absl::string_view kBearer = "Bearer ";
constexpr char kAnonymous[] = "anonymous";

absl::Status Unauthenticated(absl::string_view reason, absl::string_view message) {
  return WithReason(absl::UnauthenticatedError(message), StdView(reason));
}

}  // namespace

absl::Status Gate::CheckStill(const Caller& admitted, const Presented& presented) const {
  const absl::StatusOr<Caller> now = Identify(presented);
  if (!now.ok()) return now.status();
  if (now->role >= admitted.role) return absl::OkStatus();
  return Unauthenticated("TOKEN_NOT_VALID", "the token has a lower role than it had when this call began");
}

absl::StatusOr<Caller> Gate::Identify(const Presented& presented) const {
  if (presented.by_socket) return Caller{.name = "unix", .role = Role::kAdmin};
  if (options_.auth == Auth::kNone) {
    const bool named = !presented.subject.empty();
    return Caller{.name = named ? std::string(presented.subject) : kAnonymous, .role = Role::kAdmin};
  }
  if (presented.authorization.empty()) {
    if (!presented.subject.empty() && options_.certificate_role) {
      return Caller{.name = std::string(presented.subject), .role = *options_.certificate_role};
    }
    return Unauthenticated(
        "NO_TOKEN",
        "no token: give one as `authorization: Bearer TOKEN` (permafrost --token-file FILE, or PERMAFROST_TOKEN)");
  }
  const absl::string_view authorization = AbslView(presented.authorization);
  if (!absl::StartsWithIgnoreCase(authorization, kBearer)) {
    return Unauthenticated("NO_TOKEN", "authorization: accepted: Bearer TOKEN");
  }
  const std::optional<Token> token = tokens_->Find(presented.authorization.substr(kBearer.size()));
  if (!token) {
    return Unauthenticated(
        "TOKEN_NOT_VALID",
        "the token is unknown, expired or revoked: an admin makes another (permafrost server token create)");
  }
  return Caller{.name = absl::StrCat("tokens/", token->id), .role = token->role};
}

absl::StatusOr<Caller> Gate::Admit(std::string_view path, const Presented& presented) const {
  const MethodRule rule = RuleOf(path);
  absl::StatusOr<Caller> caller = Identify(presented);
  if (!rule.least) return caller.ok() ? *std::move(caller) : Caller{.name = kAnonymous, .role = Role::kViewer};
  if (caller.ok() && caller->role < *rule.least) {
    const std::string least(kRoleNames.Name(*rule.least)), role(kRoleNames.Name(caller->role));
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat(AbslView(path.substr(path.empty() ? 0 : 1)), " needs role ", least,
                                                 ": ", caller->name, " has role ", role)),
        "ROLE_TOO_LOW", {{"role", role}, {"needed", least}});
  }
  return caller;
}

}  // namespace permafrost::access
