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
  // Returns a list such as "l1, mse", for messages that say what is accepted.
  std::string Accepted() const {
    std::string out;
    for (const auto& [e, n] : rows) {
      if (!out.empty()) out += ", ";
      out += n;
    }
    return out;
  }
};

// Makes a table of names from rows of traits. Each row has a member `name`, and holds its enum value in the member
// that `value` points to.
template <class E, class Traits, std::size_t N>
constexpr EnumNames<E, N> NamesFrom(const std::array<Traits, N>& rows, E Traits::*value) {
  EnumNames<E, N> names{};
  for (std::size_t i = 0; i < N; ++i) names.rows[i] = {rows[i].*value, rows[i].name};
  return names;
}
// Returns the row whose enum value is `wanted`, or the first row if there is none.
template <class E, class Traits, std::size_t N>
constexpr const Traits& RowOf(const std::array<Traits, N>& rows, E Traits::*value, E wanted) {
  for (const Traits& row : rows)
    if (row.*value == wanted) return row;
  return rows.front();
}

}  // namespace permafrost
