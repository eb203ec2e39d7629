// One table per enum: the wire's value beside the domain's.
//   constexpr WireEnum<v1::JobSpec::Loss, nn::Loss, 2> kLosses{{{{v1::JobSpec::LOSS_L1, nn::Loss::kL1}, ...}}};
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace permafrost::api {

template <class Wire, class Domain, std::size_t N>
struct WireEnum {
  std::array<std::pair<Wire, Domain>, N> rows;

  constexpr Wire ToWire(Domain value) const {
    for (const auto& [wire, domain] : rows)
      if (domain == value) return wire;
    return static_cast<Wire>(0);
  }
  // `value` is a number from the wire, of this version's enum or of another's.
  constexpr std::optional<Domain> FromWire(int value) const {
    for (const auto& [wire, domain] : rows)
      if (static_cast<int>(wire) == value) return domain;
    return std::nullopt;
  }
  // Overwrites `out` unless `value` is 0 (unspecified: the default stays) or unknown (a violation of `field`).
  void Read(int value, std::string_view field, Domain& out, Violations& violations) const {
    if (value == 0) return;
    if (const auto domain = FromWire(value)) {
      out = *domain;
    } else {
      violations.Add(field, std::to_string(value) + " is unknown; accepted: " + Accepted());
    }
  }
  // "LOSS_L1, LOSS_MSE"
  std::string Accepted() const {
    std::string out;
    for (const auto& [wire, domain] : rows) {
      if (!out.empty()) out += ", ";
      out += google::protobuf::GetEnumDescriptor<Wire>()->FindValueByNumber(wire)->name();
    }
    return out;
  }
};

}  // namespace permafrost::api
