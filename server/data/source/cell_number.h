// Numbers in cells. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace permafrost::data {

enum class IntegerCell { kOk, kOutOfRange, kNotInteger };

// A whole cell of [+-]digits.
IntegerCell ParseInteger(std::string_view cell, int32_t& value);
IntegerCell ParseInteger(std::string_view cell, int64_t& value);
// A whole cell that is a number, rounded to float; nullopt if it is none, or not finite.
std::optional<float> ParseFinite(std::string_view cell);
// Says for messages why ParseFinite refuses a cell: "1e300" is out of float32's range, others are no finite numbers.
std::string_view WhyNotFinite(std::string_view cell);
inline constexpr std::string_view kBeyondFloat32 = "is out of float32's range (3.4e38 at most)";
// Says what is wrong with the weight of an edge, which must be a finite number of at least 0: "-1 is negative, ...".
// nullopt: nothing is wrong.
std::optional<std::string> FaultOfWeight(float weight);
// The same of a cell; nullopt sets `weight`.
std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight);

}  // namespace permafrost::data
