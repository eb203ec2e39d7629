#include "client/limit_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/format.h"
#include "client/time_text.h"
#include "client/wire_time.h"

namespace permafrost::client {
namespace {

constexpr char kNoLimit[] = "none";

// `parse`: nullopt for what it does not accept.
template <class Parse>
CLI::Validator Accepts(const char* accepted, bool none, Parse parse) {
  const auto check = [accepted, none, parse](const std::string& text) -> std::string {
    if ((none && text == kNoLimit) || parse(text)) return "";
    return absl::StrCat("'", OneLine(text), "'; accepted: ", accepted, none ? ", or none" : "");
  };
  return CLI::Validator(check, "");
}

CLI::Validator IsDuration(bool none) {
  return Accepts(kAcceptedDuration, none, [](const std::string& text) { return ParseDurationText(text).has_value(); });
}

CLI::Validator IsTime(bool none) {
  return Accepts(kAcceptedTime, none,
                 [](const std::string& text) { return ParseTimeText(text, absl::Now()).has_value(); });
}

}  // namespace

void AddLimitFlags(CLI::App& command, LimitFlags& flags) {
  command
      .add_option("--max-runtime", flags.max_runtime,
                  "Most time on the device, all runs together, as 45m, 1h30m or 2d; then the job fails, after a "
                  "checkpoint (default: no limit)")
      ->check(IsDuration(/*none=*/false))
      ->type_name("DURATION");
  command
      .add_option("--deadline", flags.deadline,
                  "When the job is to have ended, as 2026-01-31T13:00:00Z, or as 12h from now; else it fails, after a "
                  "checkpoint (default: none)")
      ->check(IsTime(/*none=*/false))
      ->type_name("TIME");
  command
      .add_option("--max-retries", flags.max_retries,
                  "Runs in a row, after the first, that errors of the machine may end; 0: no limit (default 0)")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
}

void Override(const LimitFlags& flags, v1::JobSpec& spec) {
  if (flags.max_runtime) *spec.mutable_max_runtime() = ToWire(*ParseDurationText(*flags.max_runtime));
  if (flags.deadline) *spec.mutable_deadline() = ToWire(*ParseTimeText(*flags.deadline, absl::Now()));
  if (flags.max_retries) spec.set_max_retries(*flags.max_retries);
}

void AddLimitUpdateFlags(CLI::App& command, LimitFlags& flags) {
  command
      .add_option("--max-runtime", flags.max_runtime, "Most time on the device, as 45m, 1h30m or 2d; none: no limit")
      ->check(IsDuration(/*none=*/true))
      ->type_name("DURATION");
  command
      .add_option("--deadline", flags.deadline,
                  "When the job is to have ended, as 2026-01-31T13:00:00Z, or as 12h from now; none: never")
      ->check(IsTime(/*none=*/true))
      ->type_name("TIME");
}

void ApplyLimitUpdate(const LimitFlags& flags, v1::UpdateJobRequest& request) {
  LimitFlags given = flags;
  if (given.max_runtime == kNoLimit) given.max_runtime.reset();
  if (given.deadline == kNoLimit) given.deadline.reset();
  Override(given, *request.mutable_job()->mutable_spec());
  if (flags.max_runtime) request.mutable_update_mask()->add_paths("spec.max_runtime");
  if (flags.deadline) request.mutable_update_mask()->add_paths("spec.deadline");
}

}  // namespace permafrost::client
