#include "device/cpu/tape_compare.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

template <class T>
std::string Text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// Values that reach a kernel's code path: equal bits, so that NaN equals itself and 0.0 is not -0.0.
bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Compares arguments without their tensors.
bool SameValue(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) return SameBits(a.toDouble(), b.toDouble());
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    return std::ranges::equal(x, y, SameValue);
  }
  if (a.isTensor() || b.isTensor()) return a.isTensor() && b.isTensor();  // uses are compared apart
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
  // Returns whether integers are all that differs.
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

}  // namespace permafrost::device
