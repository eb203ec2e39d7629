#include "data/source/cell_number.h"

#include <fast_float/fast_float.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

// std::from_chars knows no plus sign.
std::string_view WithoutPlus(std::string_view cell) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  return cell;
}

template <class T>
IntegerCell Parse(std::string_view cell, T& value) {
  cell = WithoutPlus(cell);
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return IntegerCell::kNotInteger;
  return error == std::errc() ? IntegerCell::kOk : IntegerCell::kOutOfRange;
}

}  // namespace

IntegerCell ParseInteger(std::string_view cell, int32_t& value) { return Parse(cell, value); }
IntegerCell ParseInteger(std::string_view cell, int64_t& value) { return Parse(cell, value); }

std::optional<float> ParseFinite(std::string_view cell) {
  cell = WithoutPlus(cell);
  float value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = fast_float::from_chars(cell.data(), end, value);
  // Newer versions of fast_float call it out of range too where a number is nearest to 0.
  const bool is_number = error == std::errc() || (error == std::errc::result_out_of_range && value == 0);
  if (stop != end || !is_number || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string_view WhyNotFinite(std::string_view cell) {
  cell = WithoutPlus(cell);
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = fast_float::from_chars(cell.data(), end, value);
  // A cell of letters alone says itself that it is infinite, so it holds no number that is out of range.
  const bool has_digits = cell.find_first_of("0123456789") != cell.npos;
  return stop == end && has_digits && error != std::errc::invalid_argument ? kBeyondFloat32 : "is not a finite number";
}

std::optional<std::string> FaultOfWeight(float weight) {
  if (!std::isfinite(weight)) return "is not a finite number";
  if (weight < 0) return absl::StrCat(weight, " is negative; weights of at least 0 are accepted");
  return std::nullopt;
}

std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight) {
  const auto value = ParseFinite(cell);
  if (!value) return absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell)));
  weight = *value;
  return FaultOfWeight(weight);
}

}  // namespace permafrost::data
