#include "graphcache/size_sum.h"

#include <cstdlib>
#include <utility>

namespace permafrost::graphcache {
namespace {

using ShapeSizes = std::span<const std::vector<int64_t>>;

// The constant that is left of `values` when the terms are taken away; nullopt: it is none.
std::optional<int64_t> Rest(std::span<const int64_t> values, ShapeSizes sizes,
                            const std::vector<SizeSum::Term>& terms) {
  const SizeSum sum{terms, 0};
  const int64_t rest = values[0] - sum.At(sizes[0]);
  for (size_t k = 1; k < values.size(); ++k) {
    if (values[k] - sum.At(sizes[k]) != rest) return std::nullopt;
  }
  return rest;
}

// Keeps of the candidates of one kind that with the least constant.
class Plainest {
 public:
  Plainest(std::span<const int64_t> values, ShapeSizes sizes) : values_(values), sizes_(sizes) {}
  void Try(std::vector<SizeSum::Term> terms) {
    const std::optional<int64_t> rest = Rest(values_, sizes_, terms);
    if (rest && (!best_ || std::abs(*rest) < std::abs(best_->plus))) best_ = SizeSum{std::move(terms), *rest};
  }
  const std::optional<SizeSum>& best() const { return best_; }

 private:
  std::span<const int64_t> values_;
  ShapeSizes sizes_;
  std::optional<SizeSum> best_;
};

}  // namespace

int64_t SizeSum::At(std::span<const int64_t> sizes) const {
  int64_t sum = plus;
  for (const Term& term : terms) sum += term.factor * sizes[term.size];
  return sum;
}

std::optional<SizeSum> FindSum(std::span<const int64_t> values, ShapeSizes sizes) {
  const size_t count = sizes.front().size();
  Plainest one(values, sizes);
  for (size_t i = 0; i < count; ++i) one.Try({{i, 1}});
  if (one.best()) return one.best();
  Plainest two(values, sizes);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i <= j) two.Try({{i, 1}, {j, 1}});
      if (i != j) two.Try({{i, 1}, {j, -1}});
    }
  }
  if (two.best()) return two.best();
  Plainest multiple(values, sizes);
  for (size_t i = 0; i < count; ++i) {
    const int64_t step = sizes[1][i] - sizes[0][i];
    if (step != 0 && (values[1] - values[0]) % step == 0) multiple.Try({{i, (values[1] - values[0]) / step}});
  }
  return multiple.best();
}

}  // namespace permafrost::graphcache
