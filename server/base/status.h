// The errors that the parts of the server share. An error is an absl::Status whose message is one line that names the
// thing, the value and what is accepted. The structured part (the fields, the reason) travels as a payload, which
// api/ turns into google.rpc details. Threads: everything here is pure.
#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost {

// One bad field of a request or a file.
struct FieldViolation {
  std::string field;        // path in snake_case, e.g. "spec.model.hidden_channels"
  std::string description;  // the value and what is accepted
  bool operator==(const FieldViolation&) const = default;
};

// Collects violations so that a caller learns all of them at once. Keeps the first kMax violations and the number of
// the others, so that a large bad input still makes a small error.
class Violations {
 public:
  static constexpr std::size_t kMax = 64;

  void Add(std::string_view field, std::string_view description);
  // Adds the violations in `status`, except those of fields that have a violation already.
  void AddMissing(const absl::Status& status);
  bool empty() const { return list_.empty(); }
  // Returns Ok if there are no violations. Errors: InvalidArgument with the message "field: description; field:
  // description". Beyond kMax, the last violation has no field and says "and N more".
  absl::Status ToStatus() const;

 private:
  std::vector<FieldViolation> list_;
  std::size_t more_ = 0;
};

// Returns the violations of a status that Violations made, or an empty list for any other status.
std::vector<FieldViolation> GetViolations(const absl::Status& status);

// A machine-readable reason in UPPER_SNAKE_CASE. It becomes google.rpc.ErrorInfo on the wire.
struct ErrorReason {
  std::string reason;
  std::map<std::string, std::string> metadata;
  bool operator==(const ErrorReason&) const = default;
};

// Returns `status` with this reason in place of any earlier one.
absl::Status WithReason(absl::Status status, std::string_view reason, std::map<std::string, std::string> metadata = {});
// Returns an empty reason if none is attached.
ErrorReason GetReason(const absl::Status& status);

// Returns `status` marked as an error of the machine and not of the work. Examples are a full disk, too many open
// files, or a file that cannot be read just now. The same call may succeed later, so callers must not give up or
// discard anything because of it.
absl::Status AsTransient(absl::Status status);
bool IsTransient(const absl::Status& status);

// Returns `status` marked as a fault that leaves the accelerator unusable until the process ends, such as an illegal
// memory access on CUDA. Each later call of the device fails with the same error. The status is also marked
// transient, because the work itself need not be at fault: only a retry in another process can tell.
absl::Status AsDeviceFault(absl::Status status);
bool IsDeviceFault(const absl::Status& status);

// Returns `error` with the payloads of `from`. Callers use the function to report `from` with another code or
// message.
absl::Status WithPayloadsOf(absl::Status error, const absl::Status& from);
// Returns `status` with "context: " before its message. The payloads stay.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// Calls `body`, which returns a Status or a StatusOr, and turns exceptions of the standard library into a Status. An
// exception thus fails only the work that `what` names ("batch 3"), and not the process. std::bad_alloc becomes
// ResourceExhausted, and any other std::exception becomes Internal.
template <class Body>
auto WithoutThrowing(std::string_view what, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(AbslView(what), ": out of memory"));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(AbslView(what), ": ", e.what()));
  }
}

}  // namespace permafrost

// The two usual control-flow macros of Abseil code, which Debian's Abseil (20220623) lacks.
#define PF_CONCAT_INNER(a, b) a##b
#define PF_CONCAT(a, b) PF_CONCAT_INNER(a, b)
#define PF_RETURN_IF_ERROR(expr)                            \
  do {                                                      \
    if (absl::Status pf_status = (expr); !pf_status.ok()) { \
      return pf_status;                                     \
    }                                                       \
  } while (false)
#define PF_ASSIGN_OR_RETURN(lhs, expr) PF_ASSIGN_OR_RETURN_IMPL(PF_CONCAT(pf_statusor_, __LINE__), lhs, expr)
#define PF_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                             \
  if (!var.ok()) return std::move(var).status(); \
  lhs = *std::move(var)
