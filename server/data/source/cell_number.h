// Numbers in cells. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace permafrost::data {

enum class IntegerCell { kOk, kOutOfRange, kNotInteger };

// A whole cell of [+-]digits.
IntegerCell ParseInteger(std::string_view cell, int32_t& value);
IntegerCell ParseInteger(std::string_view cell, int64_t& value);
// A whole cell that is a number, rounded to float; nullopt if it is none, or not finite.
std::optional<float> ParseFinite(std::string_view cell);

}  // namespace permafrost::data
