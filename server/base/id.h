// Identifiers of different things have different types: `using JobId = Id<struct JobTag>;`.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace permafrost {

template <class Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string value) : value_(std::move(value)) {}
  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }
  auto operator<=>(const Id&) const = default;

 private:
  std::string value_;
};

using JobId = Id<struct JobTag>;
using DatasetId = Id<struct DatasetTag>;
using UploadId = Id<struct UploadTag>;
using ProgramId = Id<struct ProgramTag>;

// Returns Ok if `value` has 1 to 63 characters of [a-z0-9-] and begins with a letter. Errors: InvalidArgument with a
// violation of `field`.
absl::Status CheckIdSyntax(std::string_view field, std::string_view value);

}  // namespace permafrost
