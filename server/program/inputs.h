// Checks what a step passes against what a program was exported for.
// Threads: after construction, any.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "program/program.h"

namespace permafrost::program {

class InputChecker {
 public:
  // Borrows the program.
  explicit InputChecker(const Program& program);
  // InvalidArgument that names the input whose kind, type or sizes are not the program's. Computed sizes, such as 2 *
  // N, are left to the operators.
  absl::Status Check(const std::vector<c10::IValue>& inputs) const;

 private:
  static constexpr int32_t kNumber = -1, kAny = -2;
  struct Wanted {
    int64_t number = 0;
    int32_t symbol = kNumber;  // a place in symbols_
  };
  struct Symbol {
    std::string name;
    int64_t min = INT64_MIN, max = INT64_MAX;
  };
  class Sizes;

  Wanted WantedOf(const Size& size);
  absl::Status CheckTensor(const TensorType& type, const std::vector<Wanted>& wanted, const c10::IValue& value,
                           Sizes& sizes) const;

  const Program& program_;
  std::vector<Symbol> symbols_;
  std::vector<std::vector<Wanted>> wanted_;  // by input: its sizes, or the int itself
};

}  // namespace permafrost::program
