// Converts single values between the wire and the domain: text, times and enums. A proto3 string must be valid UTF-8,
// and text in a trailer must be short.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/timestamp.pb.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::api {

// Replaces each byte that does not belong to a valid UTF-8 sequence with U+FFFD.
std::string ValidUtf8(std::string_view text);
// Returns ValidUtf8(text), cut between characters to at most `max_bytes` (>= 3). Text that was cut ends with "...",
// which counts towards `max_bytes`.
std::string Clip(std::string_view text, std::size_t max_bytes);

// Writes `time` to out(), unless it is infinite. `out` is a function, because accessing a submessage would set it:
//  SetTime(job.end_time, [&] { return wire.mutable_end_time(); });
template <class Out>
void SetTime(absl::Time time, Out out) {
  if (time == absl::InfinitePast() || time == absl::InfiniteFuture()) return;
  const int64_t seconds = absl::ToUnixSeconds(time);
  google::protobuf::Timestamp* wire = out();
  wire->set_seconds(seconds);
  wire->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

// Converts a finite duration of any sign.
inline google::protobuf::Duration SignedDuration(absl::Duration duration) {
  google::protobuf::Duration wire;
  absl::Duration rest;
  wire.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return wire;
}

// Writes `duration` to out(), unless it is unknown: infinite, zero or negative.
template <class Out>
void SetDuration(absl::Duration duration, Out out) {
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) return;
  *out() = SignedDuration(duration);
}

// Maps one enum between the wire and the domain, by name: LOSS_CROSS_ENTROPY is "cross-entropy" in the domain. A new
// value needs a row in the domain's table and a line in the contract, and no change here.
//   using Losses = WireEnum<v1::JobSpec::Loss, spec::kLossNames>;
// `kNames` is the domain's EnumNames.
template <class Wire, const auto& kNames>
class WireEnum {
 public:
  using Domain = typename std::decay_t<decltype(kNames.rows)>::value_type::first_type;

  // Returns the wire's value; the unspecified one if the contract has no name for `value`.
  static Wire ToWire(Domain value) {
    for (const auto& [wire, domain] : Rows())
      if (domain == value) return wire;
    return static_cast<Wire>(0);
  }
  // Returns nullopt for 0 (unspecified), and for an unknown number, which another version may have sent.
  static std::optional<Domain> FromWire(int value) {
    for (const auto& [wire, domain] : Rows())
      if (static_cast<int>(wire) == value) return domain;
    return std::nullopt;
  }
  // Sets `out` to the domain's value. If `value` is 0 (unspecified), leaves `out` unchanged. If `value` is unknown,
  // adds a violation of `field`.
  static void Read(int value, std::string_view field, Domain& out, Violations& violations) {
    if (value == 0) return;
    if (const auto domain = FromWire(value)) {
      out = *domain;
    } else {
      violations.Add(field, std::to_string(value) + " is unknown; accepted: " + Accepted());
    }
  }
  // Returns the accepted names: "LOSS_L1, LOSS_MSE".
  static std::string Accepted() {
    std::string out;
    for (const auto& [wire, domain] : Rows()) {
      if (!out.empty()) out += ", ";
      out += google::protobuf::GetEnumDescriptor<Wire>()->FindValueByNumber(wire)->name();
    }
    return out;
  }
  static std::size_t size() { return Rows().size(); }

 private:
  // Returns pairs of wire and domain values, in the domain's order.
  static const std::vector<std::pair<Wire, Domain>>& Rows() {
    static const auto& rows = *new std::vector<std::pair<Wire, Domain>>(MakeRows());
    return rows;
  }
  static std::vector<std::pair<Wire, Domain>> MakeRows() {
    std::vector<std::pair<Wire, Domain>> rows;
    for (const auto& [domain, name] : kNames.rows) {
      const auto wire = ParseEnum(*google::protobuf::GetEnumDescriptor<Wire>(), name);
      if (wire) rows.emplace_back(static_cast<Wire>(*wire), domain);
    }
    return rows;
  }
};

}  // namespace permafrost::api
