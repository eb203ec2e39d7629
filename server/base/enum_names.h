// One table per enum, used by flags, API, metrics and docs alike.
// Threads: values and pure functions.
//   inline constexpr EnumNames<Loss, 2> kLossNames{{{Loss::kL1, "l1"}, {Loss::kMse, "mse"}}};
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace permafrost {

template <class E, std::size_t N>
struct EnumNames {
  std::array<std::pair<E, std::string_view>, N> rows;

  constexpr std::string_view Name(E value) const {
    for (const auto& [e, name] : rows)
      if (e == value) return name;
    return "unknown";
  }
  constexpr std::optional<E> Parse(std::string_view name) const {
    for (const auto& [e, n] : rows)
      if (n == name) return e;
    return std::nullopt;
  }
  // "l1, mse": for messages that say what would be accepted.
  std::string Accepted() const {
    std::string out;
    for (const auto& [e, n] : rows) {
      if (!out.empty()) out += ", ";
      out += n;
    }
    return out;
  }
};

}  // namespace permafrost
