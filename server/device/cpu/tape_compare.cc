#include "device/cpu/tape_compare.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

template <class T>
std::string Text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// Compares the bits, so that NaN equals itself and 0.0 does not equal -0.0. A kernel may behave differently for 0.0
// and -0.0.
bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Compares arguments without their tensors.
bool SameValue(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) return SameBits(a.toDouble(), b.toDouble());
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    return std::ranges::equal(x, y, SameValue);
  }
  if (a.isTensor() || b.isTensor()) return a.isTensor() && b.isTensor();  // Op::uses are compared instead
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  return a == b;
}

bool SameNumber(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool SameLayout(const Tape::Slot& a, const Tape::Slot& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.type == b.type;
}
bool SameRank(const Tape::Slot& a, const Tape::Slot& b) { return a.sizes.size() == b.sizes.size() && a.type == b.type; }

std::string Describe(const Tape::Slot& slot) { return device::Describe(slot.type, slot.sizes); }

class Comparer {
 public:
  Comparer(size_t place, const OpOfTape& one, const OpOfTape& next, const OnInteger& on_integer)
      : place_(place), x_(one), y_(next), on_integer_(on_integer) {}

  std::optional<TapeBreak> Run() {
    if (x_.op.handle != y_.op.handle) {
      Break(absl::StrCat("is operator ", place_, " of one step, and ", AbslView(y_.op.name()), " of the next"));
      return broken_;
    }
    for (size_t a = 0; a < x_.op.args.size(); ++a) CompareArgument(a);
    if (x_.op.uses.size() != y_.op.uses.size()) {
      Break("takes another number of tensors in the next step");
      return broken_;
    }
    for (size_t u = 0; u < x_.op.uses.size(); ++u) CompareUse(x_.op.uses[u], y_.op.uses[u]);
    CompareReturns();
    return broken_;
  }

 private:
  void Break(std::string why) {
    if (!broken_) broken_ = TapeBreak{std::string(x_.op.name()), std::move(why)};
  }
  std::string_view Where() const { return on_integer_ ? "" : ", for equal shapes"; }

  void CompareArgument(size_t arg) {
    const c10::IValue &x = x_.op.args[arg], &y = y_.op.args[arg];
    if (SameValue(x, y) || (on_integer_ && TakeIntegers(arg, x, y))) return;
    Break(absl::StrCat(ArgumentName(x_.op, arg), " is ", Text(x), " in one step and ", Text(y), " in the next",
                       AbslView(Where()), ": a host value that changes"));
  }
  // If the arguments differ only in integers, passes the integers that differ to on_integer_ and returns true.
  bool TakeIntegers(size_t arg, const c10::IValue& x, const c10::IValue& y) const {
    if (x.isInt() && y.isInt()) {
      on_integer_({place_, arg, std::nullopt}, x.toInt(), y.toInt());
      return true;
    }
    if (!x.isList() || !y.isList()) return false;
    const auto xs = x.toListRef(), ys = y.toListRef();
    const auto comparable = [](const c10::IValue& a, const c10::IValue& b) {
      return (a.isInt() && b.isInt()) || SameValue(a, b);
    };
    if (!std::ranges::equal(xs, ys, comparable)) return false;
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!SameValue(xs[i], ys[i])) on_integer_({place_, arg, i}, xs[i].toInt(), ys[i].toInt());
    }
    return true;
  }

  void CompareUse(const Tape::Use& x, const Tape::Use& y) {
    const std::string argument = ArgumentName(x_.op, x.arg);
    const Tape::Slot &was = x_.slots[x.slot], &is = y_.slots[y.slot];
    if (x.slot != y.slot || was.kind != is.kind || x.arg != y.arg || x.element != y.element) {
      return Break(absl::StrCat("takes another tensor as ", argument, " in the next step"));
    }
    if (was.kind != Tape::SlotKind::kNumber || SameNumber(was.tensor, is.tensor)) return;
    Break(absl::StrCat(argument, " is ", Text(was.tensor.item()), " in one step and ", Text(is.tensor.item()),
                       " in the next: a host value that changes"));
  }

  void CompareReturns() {
    if (x_.op.returns != y_.op.returns) return Break("returns other tensors in the next step");
    for (const auto& slots : x_.op.returns) {
      for (const size_t s : slots) {
        const Tape::Slot &x = x_.slots[s], &y = y_.slots[s];
        if (on_integer_ ? SameRank(x, y) : SameLayout(x, y)) continue;
        return Break(absl::StrCat("returns a tensor ", Describe(x), " in one step and ", Describe(y), " in the next",
                                  AbslView(Where())));
      }
    }
  }

  const size_t place_;
  const OpOfTape &x_, &y_;
  const OnInteger& on_integer_;
  std::optional<TapeBreak> broken_;
};

}  // namespace

std::string ArgumentName(const Tape::Op& op, size_t arg) { return op.handle.schema().arguments()[arg].name(); }

std::string Describe(c10::ScalarType type, at::IntArrayRef sizes) {
  return absl::StrCat("of type ", c10::toString(type), " and shape ", Text(sizes));
}

std::optional<TapeBreak> FindDifference(size_t place, const OpOfTape& one, const OpOfTape& next,
                                        const OnInteger& on_integer) {
  return Comparer(place, one, next, on_integer).Run();
}

namespace {

// By place of an integer argument: its values at all shapes. Integers that have one value at all shapes are left out.
using Integers = std::map<IntegerPlace, std::vector<int64_t>>;

std::optional<TapeBreak> CollectIntegers(std::span<const std::unique_ptr<Tape>> tapes, Integers& integers) {
  const Tape& first = *tapes.front();
  for (size_t k = 1; k < tapes.size(); ++k) {
    const Tape& next = *tapes[k];
    if (next.ops().size() != first.ops().size()) {
      return TapeBreak{"", absl::StrCat("one step has ", first.ops().size(), " operators, and one of another shape ",
                                        next.ops().size())};
    }
    for (size_t i = 0; i < first.ops().size(); ++i) {
      auto broken = FindDifference(i, {first.ops()[i], first.slots()}, {next.ops()[i], next.slots()},
                                   [&](const IntegerPlace& place, int64_t one, int64_t other) {
                                     integers.try_emplace(place, tapes.size(), one).first->second[k] = other;
                                   });
      if (broken) return broken;
    }
    if (next.outputs() != first.outputs()) return TapeBreak{"", "a step of another shape returns other tensors"};
  }
  return std::nullopt;
}

TapeBreak NoSum(const Tape& tape, const IntegerPlace& place, const std::vector<int64_t>& values,
                const std::string& why) {
  const Tape::Op& op = tape.ops()[place.op];
  const std::string element = place.element ? absl::StrCat("[", *place.element, "]") : "";
  return {std::string(op.name()),
          absl::StrCat(ArgumentName(op, place.arg), element, " is ", absl::StrJoin(values, ", "),
                       values.size() > 1 ? " at as many shapes: " : " at one more shape: ", why)};
}

int64_t IntegerAt(const Tape& tape, const IntegerPlace& place) {
  const c10::IValue& arg = tape.ops()[place.op].args[place.arg];
  return place.element ? arg.toListRef()[*place.element].toInt() : arg.toInt();
}

}  // namespace

std::optional<TapeBreak> StepSizes::Find(std::span<const std::unique_ptr<Tape>> tapes, StepSizes& out) {
  out = {};
  // Collects the sizes that differ between shapes. Each input dimension whose size differs gives one row, with its
  // size at each shape. Equal rows are kept once.
  std::vector<std::vector<int64_t>> of_size;  // [sizes][shapes]
  for (size_t s = 0; s < tapes.front()->slots().size(); ++s) {
    const Tape::Slot& slot = tapes.front()->slots()[s];
    if (slot.kind != Tape::SlotKind::kInput) break;  // inputs come first
    Input input{.type = slot.type, .dimensions = {}};
    for (size_t d = 0; d < slot.sizes.size(); ++d) {
      std::vector<int64_t> values;
      for (const auto& tape : tapes) {
        const Tape::Slot& other = tape->slots().at(s);
        if (other.kind != slot.kind || other.index != slot.index || other.type != slot.type ||
            other.sizes.size() != slot.sizes.size()) {
          return TapeBreak{"", absl::StrCat("input ", slot.index, " is of another kind at another shape")};
        }
        values.push_back(other.sizes[d]);
      }
      Dimension dimension{.constant = values.front(), .size = std::nullopt};
      if (std::ranges::adjacent_find(values, std::not_equal_to()) != values.end()) {
        const auto known = std::ranges::find(of_size, values);
        dimension.size = static_cast<size_t>(known - of_size.begin());
        if (known == of_size.end()) of_size.push_back(std::move(values));
      }
      input.dimensions.push_back(dimension);
    }
    out.inputs_.resize(slot.index + 1);
    out.inputs_[slot.index] = std::move(input);
  }
  out.count_ = of_size.size();

  Integers integers;
  if (auto broken = CollectIntegers(tapes, integers)) return broken;
  const size_t compared = std::min(tapes.size(), kLearnedShapes);
  std::vector<std::vector<int64_t>> sizes(tapes.size());
  for (size_t k = 0; k < tapes.size(); ++k) {
    for (const std::vector<int64_t>& values : of_size) sizes[k].push_back(values[k]);
  }
  for (const auto& [place, values] : integers) {
    const auto sum = FindSum(std::span(values).first(compared), std::span(sizes).first(compared));
    if (!sum) return NoSum(*tapes.front(), place, values, "it does not follow from the sizes of the inputs");
    for (size_t k = compared; k < tapes.size(); ++k) {
      if (sum->At(sizes[k]) == values[k]) continue;
      return NoSum(*tapes.front(), place, values,
                   absl::StrCat("what gives the first ones gives ", sum->At(sizes[k]), " for the last"));
    }
    out.arguments_.push_back({place, *sum});
  }
  return std::nullopt;
}

absl::Status StepSizes::Read(const graphcache::StepInputs& inputs, std::vector<int64_t>& sizes) const {
  const auto refuse = [](size_t index, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("input ", index, " of a captured step ", why));
  };
  sizes.assign(count_, -1);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.type == c10::ScalarType::Undefined) continue;
    if (i >= inputs.tensors.size() || !inputs.tensors[i].defined()) return refuse(i, "is missing");
    const at::Tensor& tensor = inputs.tensors[i];
    if (tensor.scalar_type() != input.type || tensor.dim() != static_cast<int64_t>(input.dimensions.size())) {
      return refuse(i, "is of another type or rank than when it was captured");
    }
    for (size_t d = 0; d < input.dimensions.size(); ++d) {
      const int64_t size = tensor.sizes()[d];
      const Dimension& dimension = input.dimensions[d];
      int64_t wanted = dimension.constant;
      if (dimension.size) {
        int64_t& known = sizes[*dimension.size];
        wanted = known = known < 0 ? size : known;
      }
      if (size != wanted) {
        return refuse(i, absl::StrCat("has ", size, " in dimension ", d, " where ", wanted, " goes with the rest"));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> StepSizes::Compare(Tape& tape, const graphcache::StepInputs& inputs,
                                           const Tape::Body& body) const {
  std::vector<int64_t> sizes;
  if (const absl::Status read = Read(inputs, sizes); !read.ok()) {
    tape.Break({"", absl::StrCat("at one more shape ", read.message())});
    return {};
  }
  std::map<IntegerPlace, int64_t> differ;
  const auto on_integer = [&](const IntegerPlace& place, int64_t /*one*/, int64_t next) { differ[place] = next; };
  std::vector<at::Tensor> returned = tape.Compare(inputs.tensors, body, on_integer);
  for (const Argument& a : arguments_) {
    const auto other = differ.find(a.place);
    const int64_t is = other == differ.end() ? IntegerAt(tape, a.place) : other->second;
    if (const int64_t follows = a.value.At(sizes); is != follows) {
      tape.Break(NoSum(tape, a.place, {is}, absl::StrCat("what gives the recorded ones gives ", follows)));
    }
    if (other != differ.end()) differ.erase(other);
  }
  if (!differ.empty()) {
    const auto& [place, is] = *differ.begin();
    tape.Break(NoSum(tape, place, {is}, absl::StrCat("all that were recorded had ", IntegerAt(tape, place))));
  }
  return returned;
}

int64_t StepSizes::bytes() const {
  auto bytes = static_cast<int64_t>(arguments_.capacity() * sizeof(Argument) + inputs_.capacity() * sizeof(Input));
  for (const Argument& a : arguments_) bytes += static_cast<int64_t>(a.value.terms.capacity() * sizeof(SizeSum::Term));
  for (const Input& i : inputs_) bytes += static_cast<int64_t>(i.dimensions.capacity() * sizeof(Dimension));
  return bytes;
}

}  // namespace permafrost::device
