#include "base/status.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/string_view.h"

namespace permafrost {
namespace {

constexpr absl::string_view kViolationsUrl = "permafrost/field-violations";
constexpr absl::string_view kReasonUrl = "permafrost/error-reason";
constexpr absl::string_view kTransientUrl = "permafrost/transient";
constexpr absl::string_view kDeviceFaultUrl = "permafrost/device-fault";

// A payload is a list of strings, each written as "LENGTH:BYTES", so that a string may hold any byte.
void AppendPiece(std::string& out, std::string_view piece) {
  absl::StrAppend(&out, piece.size(), ":", AbslView(piece));
}

// Returns the pieces before the first malformed one. A payload that AppendPiece wrote has no malformed piece.
std::vector<std::string> SplitPieces(std::string_view payload) {
  std::vector<std::string> pieces;
  while (!payload.empty()) {
    const std::size_t colon = payload.find(':');
    std::size_t length = 0;
    if (colon == payload.npos || !absl::SimpleAtoi(AbslView(payload.substr(0, colon)), &length)) break;
    payload.remove_prefix(colon + 1);
    if (length > payload.size()) break;
    pieces.emplace_back(payload.substr(0, length));
    payload.remove_prefix(length);
  }
  return pieces;
}

std::vector<std::string> PiecesOf(const absl::Status& status, absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  return payload ? SplitPieces(std::string(*payload)) : std::vector<std::string>();
}

}  // namespace

void Violations::Add(std::string_view field, std::string_view description) {
  if (list_.size() < kMax) {
    list_.push_back({std::string(field), std::string(description)});
  } else {
    ++more_;
  }
}

void Violations::AddMissing(const absl::Status& status) {
  const std::vector<FieldViolation> before = list_;
  for (const FieldViolation& v : GetViolations(status)) {
    const auto same_field = [&v](const FieldViolation& b) { return b.field == v.field; };
    if (std::none_of(before.begin(), before.end(), same_field)) Add(v.field, v.description);
  }
}

absl::Status Violations::ToStatus() const {
  if (list_.empty()) return absl::OkStatus();
  std::string message, payload;
  for (const FieldViolation& v : list_) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", v.field, ": ", v.description);
    AppendPiece(payload, v.field);
    AppendPiece(payload, v.description);
  }
  if (more_ > 0) {
    const std::string more = absl::StrCat("and ", more_, " more");
    absl::StrAppend(&message, "; ", more);
    AppendPiece(payload, "");
    AppendPiece(payload, more);
  }
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kViolationsUrl, absl::Cord(payload));
  return status;
}

std::vector<FieldViolation> GetViolations(const absl::Status& status) {
  const std::vector<std::string> pieces = PiecesOf(status, kViolationsUrl);
  std::vector<FieldViolation> violations;
  for (std::size_t i = 0; i + 1 < pieces.size(); i += 2) violations.push_back({pieces[i], pieces[i + 1]});
  return violations;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): callers give a temporary
absl::Status WithReason(absl::Status status, std::string_view reason, std::map<std::string, std::string> metadata) {
  std::string payload;
  AppendPiece(payload, reason);
  for (const auto& [key, value] : metadata) {
    AppendPiece(payload, key);
    AppendPiece(payload, value);
  }
  status.SetPayload(kReasonUrl, absl::Cord(payload));
  return status;
}

ErrorReason GetReason(const absl::Status& status) {
  const std::vector<std::string> pieces = PiecesOf(status, kReasonUrl);
  ErrorReason out;
  if (pieces.empty()) return out;
  out.reason = pieces[0];
  for (std::size_t i = 1; i + 1 < pieces.size(); i += 2) out.metadata.emplace(pieces[i], pieces[i + 1]);
  return out;
}

absl::Status AsTransient(absl::Status status) {
  status.SetPayload(kTransientUrl, absl::Cord());
  return status;
}

bool IsTransient(const absl::Status& status) { return status.GetPayload(kTransientUrl).has_value(); }

absl::Status AsDeviceFault(absl::Status status) {
  status.SetPayload(kDeviceFaultUrl, absl::Cord());
  return AsTransient(std::move(status));
}

bool IsDeviceFault(const absl::Status& status) { return status.GetPayload(kDeviceFaultUrl).has_value(); }

absl::Status WithPayloadsOf(absl::Status error, const absl::Status& from) {
  from.ForEachPayload([&error](absl::string_view url, const absl::Cord& payload) { error.SetPayload(url, payload); });
  return error;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return WithPayloadsOf(absl::Status(status.code(), absl::StrCat(AbslView(context), ": ", status.message())), status);
}

}  // namespace permafrost
