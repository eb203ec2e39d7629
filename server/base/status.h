// Errors across rooms: absl::Status whose message is one line that names the thing, the value and what would be
// accepted. The structured part (which fields, which reason) travels as a payload that api/ turns into google.rpc
// details. Threads: everything here is pure.
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
  std::string description;  // value and what would be accepted
  bool operator==(const FieldViolation&) const = default;
};

// Collects violations so that a caller learns all of them at once. Keeps the first kMax and counts the rest, so that a
// bad input cannot make an error of its own size.
class Violations {
 public:
  static constexpr std::size_t kMax = 64;

  void Add(std::string_view field, std::string_view description);
  // The violations of `status` in fields that have none yet: what is told once is not told again in other words.
  void AddMissing(const absl::Status& status);
  bool empty() const { return list_.empty(); }
  // Ok when empty; else InvalidArgument, message "field: description; field: description". Beyond kMax the last one has
  // no field and says "and N more".
  absl::Status ToStatus() const;

 private:
  std::vector<FieldViolation> list_;
  std::size_t more_ = 0;
};

// The violations of a status made by Violations, empty for any other.
std::vector<FieldViolation> GetViolations(const absl::Status& status);

// google.rpc.ErrorInfo without the wire: a machine-readable reason in UPPER_SNAKE_CASE.
struct ErrorReason {
  std::string reason;
  std::map<std::string, std::string> metadata;
  bool operator==(const ErrorReason&) const = default;
};

// `status` with the reason attached; replaces an earlier one.
absl::Status WithReason(absl::Status status, std::string_view reason, std::map<std::string, std::string> metadata = {});
// Empty reason where none is attached.
ErrorReason GetReason(const absl::Status& status);

// `status` marked as one of the machine rather than of the work: a full disk, too many open files, a file that cannot
// be read just now. The same call may succeed later, so nothing may be given up or set aside because of it.
absl::Status AsTransient(absl::Status status);
bool IsTransient(const absl::Status& status);

// `status` marked as a fault that leaves the accelerator unusable until the process ends, such as an illegal memory
// access on CUDA: each later call of the device fails with the same error. It is transient too: the work is not to
// blame before it has been tried again in another process.
absl::Status AsDeviceFault(absl::Status status);
bool IsDeviceFault(const absl::Status& status);

// `error` with the payloads of `from`, for an error that is told with another code or message.
absl::Status WithPayloadsOf(absl::Status error, const absl::Status& from);
// `status` with "context: " before its message; payloads are kept.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// Turns exceptions of the standard library, want of memory above all, into a Status.
// Calls `body`, which returns a Status or a StatusOr. An exception that it throws fails `what` ("batch 3"), not the
// process: std::bad_alloc is ResourceExhausted, any other std::exception Internal.
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

// The two control-flow macros that every Abseil user knows; Debian's Abseil (20220623) lacks them.
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
