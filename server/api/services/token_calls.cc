#include "api/services/token_calls.h"

#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "api/services/unary.h"
#include "api/wire/convert_time.h"
#include "api/wire/request_key.h"
#include "api/wire/text.h"
#include "api/wire/wire_enum.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

using Seen = jobs::Earlier::Seen;
using Roles = WireEnum<v1::Token::Role, access::kRoleNames>;

constexpr char kTokenCollection[] = "tokens/";

absl::Status NoTokens() { return absl::UnimplementedError("this server keeps no tokens"); }

void TokenToWire(const access::Token& token, v1::Token& wire) {
  wire.set_name(kTokenCollection + token.id);
  wire.set_role(Roles::ToWire(token.role));
  wire.set_label(ValidUtf8(token.label));
  SetTime(token.create_time, [&wire] { return wire.mutable_create_time(); });
  SetTime(token.expire_time, [&wire] { return wire.mutable_expire_time(); });
}

absl::Status MakeToken(access::TokenStore& tokens, jobs::RequestLog& requests, const v1::CreateTokenRequest& request,
                       v1::Token& response) {
  const v1::Token& wanted = request.token();
  Violations violations;
  access::Role role = access::Role::kViewer;
  if (wanted.role() == v1::Token::ROLE_UNSPECIFIED) {
    violations.Add("token.role", "is not given: accepted: " + Roles::Accepted());
  } else {
    Roles::Read(wanted.role(), "token.role", role, violations);
  }
  // 9999-12-31T23:59:59Z: what a timestamp of the wire, and its JSON, may say.
  constexpr int64_t kLastSecond = 253'402'300'799;
  const auto& expires = wanted.expire_time();
  if (wanted.has_expire_time() && (expires.seconds() < 0 || expires.seconds() > kLastSecond || expires.nanos() < 0 ||
                                   expires.nanos() > 999'999'999)) {
    violations.Add("token.expire_time", "is no time of the years 1970 to 9999");
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const absl::Time expire_time = wanted.has_expire_time() ? absl::FromUnixSeconds(wanted.expire_time().seconds()) +
                                                                absl::Nanoseconds(wanted.expire_time().nanos())
                                                          : absl::InfiniteFuture();
  return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) -> absl::Status {
    // Its secret went with the answer that was lost: the same token has another.
    absl::StatusOr<access::TokenStore::Made> made = absl::NotFoundError("");
    if (earlier.seen != Seen::kNever) made = tokens.ChangeSecret(request.request_id());
    if (absl::IsNotFound(made.status()) && earlier.seen != Seen::kAnswered) {
      made = tokens.Create(role, wanted.label(), expire_time, request.request_id());
    }
    PF_RETURN_IF_ERROR(made.status());
    TokenToWire(made->token, response);
    response.set_secret(made->secret);
    return absl::OkStatus();
  });
}

absl::Status RemoveToken(access::TokenStore& tokens, jobs::RequestLog& requests,
                         const v1::RevokeTokenRequest& request) {
  absl::string_view id = request.name();
  if (!absl::ConsumePrefix(&id, kTokenCollection) || !access::IsTokenId(id)) {
    Violations violations;
    // The value is left out, so that a secret put here by mistake reaches no log.
    violations.Add("name", "is not tokens/ID, as ListTokens tells them");
    return violations.ToStatus();
  }
  return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) {
    if (earlier.seen == Seen::kAnswered) return absl::OkStatus();
    const absl::Status revoked = tokens.Revoke(std::string(id));
    return earlier.seen == Seen::kBegun && absl::IsNotFound(revoked) ? absl::OkStatus() : revoked;
  });
}

}  // namespace

grpc::ServerUnaryReactor* CreateTokenCall(grpc::CallbackServerContext* context, CallLimit& limit,
                                          access::TokenStore* tokens, jobs::RequestLog& requests,
                                          const v1::CreateTokenRequest& request, v1::Token& response) {
  if (tokens == nullptr) return Reply(context, NoTokens());
  absl::StatusOr<CallLimit::Slot> slot = limit.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "a new token", *std::move(slot), [tokens, &requests, &request, &response] {
    return MakeToken(*tokens, requests, request, response);
  });
}

grpc::ServerUnaryReactor* ListTokensCall(grpc::CallbackServerContext* context, const access::TokenStore* tokens,
                                         v1::ListTokensResponse& response) {
  if (tokens == nullptr) return Reply(context, NoTokens());
  for (const access::Token& token : tokens->List()) TokenToWire(token, *response.add_tokens());
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* RevokeTokenCall(grpc::CallbackServerContext* context, CallLimit& limit,
                                          access::TokenStore* tokens, jobs::RequestLog& requests,
                                          const v1::RevokeTokenRequest& request) {
  if (tokens == nullptr) return Reply(context, NoTokens());
  absl::StatusOr<CallLimit::Slot> slot = limit.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "the revocation of a token", *std::move(slot),
                           [tokens, &requests, &request] { return RemoveToken(*tokens, requests, request); });
}

}  // namespace permafrost::api
