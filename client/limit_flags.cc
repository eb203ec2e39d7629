#include "client/limit_flags.h"

#include "absl/strings/str_cat.h"
#include "client/spec_field.h"

namespace permafrost::client {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kNoLimit[] = "none";

const FieldDescriptor& FieldOf(int number) { return *v1::JobSpec::descriptor()->FindFieldByNumber(number); }

void AddLimit(CLI::App& command, const char* flag, int field, std::optional<std::string>& value, const char* help,
              const char* type) {
  const auto check = [field](const std::string& text) -> std::string {
    const std::string refusal = text == kNoLimit ? "" : RefusalOf(FieldOf(field), text, ',');
    return refusal.empty() ? "" : absl::StrCat(refusal, ", or ", kNoLimit);
  };
  command.add_option(flag, value, help)->check(CLI::Validator(check, ""))->type_name(type);
}

void ApplyLimit(int number, const std::optional<std::string>& value, v1::UpdateJobRequest& request) {
  if (!value) return;
  const FieldDescriptor& field = FieldOf(number);
  v1::JobSpec& spec = *request.mutable_job()->mutable_spec();
  if (*value != kNoLimit) SetSpecField({&field}, {*value}, spec);
  request.mutable_update_mask()->add_paths(absl::StrCat("spec.", field.name()));
}

}  // namespace

void AddLimitFlags(CLI::App& command, LimitFlags& flags) {
  AddLimit(command, "--max-runtime", v1::JobSpec::kMaxRuntimeFieldNumber, flags.max_runtime,
           "Most time on the device, as 45m, 1h30m or 2d; none: no limit", "DURATION");
  AddLimit(command, "--deadline", v1::JobSpec::kDeadlineFieldNumber, flags.deadline,
           "When the job is to have ended, as 2026-01-31T13:00:00Z, or as 12h from now; none: never", "TIME");
}

void ApplyLimits(const LimitFlags& flags, v1::UpdateJobRequest& request) {
  ApplyLimit(v1::JobSpec::kMaxRuntimeFieldNumber, flags.max_runtime, request);
  ApplyLimit(v1::JobSpec::kDeadlineFieldNumber, flags.deadline, request);
}

}  // namespace permafrost::client
