#include "program/inputs.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/dtypes.h"

namespace permafrost::program {
namespace {

std::string ExpectedSizes(const TensorType& type) {
  std::string text = absl::StrCat(AbslView(kDTypeNames.Name(type.dtype)), " [");
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ");
    if (type.sizes[i].expression.empty()) {
      absl::StrAppend(&text, type.sizes[i].number);
    } else {
      absl::StrAppend(&text, Shorten(type.sizes[i].expression));
    }
  }
  return text + "]";
}

}  // namespace

// Collects the sizes of one batch by symbol. A symbol must have the same value everywhere.
class InputChecker::Sizes {
 public:
  explicit Sizes(const std::vector<Symbol>& symbols) : symbols_(symbols), known_(symbols.size()) {}

  absl::Status Match(Wanted wanted, int64_t size) {
    if (wanted.symbol == kAny) return absl::OkStatus();
    if (wanted.symbol == kNumber) {
      if (size == wanted.number) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(size, " is not ", wanted.number));
    }
    const Symbol& symbol = symbols_[wanted.symbol];
    std::optional<int64_t>& known = known_[wanted.symbol];
    if (known && *known != size) {
      return absl::InvalidArgumentError(
          absl::StrCat(size, " is not ", *known, ", as ", Shorten(symbol.name), " is elsewhere"));
    }
    known = size;
    if (size >= symbol.min && size <= symbol.max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(size, " is outside ", symbol.min, "..", symbol.max, ", for which the program was exported"));
  }

 private:
  const std::vector<Symbol>& symbols_;
  std::vector<std::optional<int64_t>> known_;
};

InputChecker::InputChecker(const Program& program) : program_(program) {
  wanted_.reserve(program.inputs.size());
  for (const Input& input : program.inputs) {
    std::vector<Wanted>& wanted = wanted_.emplace_back();
    wanted.reserve(input.type.sizes.size() + 1);
    if (input.kind != ValueKind::kTensor) wanted.push_back(WantedOf(input.size));
    for (const Size& size : input.type.sizes) wanted.push_back(WantedOf(size));
  }
  for (Symbol& symbol : symbols_) {
    for (const Range& range : program.ranges) {
      if (range.symbol != symbol.name) continue;
      symbol.min = range.min;
      symbol.max = range.max;
    }
  }
}

InputChecker::Wanted InputChecker::WantedOf(const Size& size) {
  if (size.expression.empty()) return {.number = size.number, .symbol = kNumber};
  if (size.expression.find('(') != std::string::npos) return {.number = 0, .symbol = kAny};
  const auto found = std::find_if(symbols_.begin(), symbols_.end(),
                                  [&](const Symbol& symbol) { return symbol.name == size.expression; });
  const auto place = static_cast<int32_t>(found - symbols_.begin());
  if (found == symbols_.end()) symbols_.push_back({.name = size.expression});
  return {.number = 0, .symbol = place};
}

absl::Status InputChecker::CheckTensor(const TensorType& type, const std::vector<Wanted>& wanted,
                                       const c10::IValue& value, Sizes& sizes) const {
  if (!value.isTensor() || !value.toTensor().defined()) return absl::InvalidArgumentError("must be a tensor");
  const at::Tensor& tensor = value.toTensor();
  if (tensor.scalar_type() != ScalarTypeOf(type.dtype) || tensor.dim() != static_cast<int64_t>(wanted.size())) {
    return absl::InvalidArgumentError(absl::StrCat("is ", c10::toString(tensor.scalar_type()), " of ", tensor.dim(),
                                                   " dimensions, where ", ExpectedSizes(type), " is accepted"));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const absl::Status status = sizes.Match(wanted[i], tensor.size(static_cast<int64_t>(i)));
    if (!status.ok()) return Annotate(status, absl::StrCat("size of dimension ", i));
  }
  return absl::OkStatus();
}

absl::Status InputChecker::Check(const std::vector<c10::IValue>& inputs) const {
  if (inputs.size() != wanted_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: ", inputs.size(), " of them, where the program takes ", wanted_.size()));
  }
  Sizes sizes(symbols_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = program_.inputs[i];
    absl::Status status;
    if (input.kind == ValueKind::kTensor) {
      status = CheckTensor(input.type, wanted_[i], inputs[i], sizes);
    } else if (!inputs[i].isInt()) {
      status = absl::InvalidArgumentError("must be an int");
    } else {
      status = sizes.Match(wanted_[i][0], inputs[i].toInt());
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("input ", Quote(input.name)));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::program
