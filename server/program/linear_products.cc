#include "program/linear_products.h"

#include <algorithm>
#include <cstddef>

namespace permafrost::program {
namespace {

// Work is counted in multiplications for each output and pair of edges. A gather and its sum move numbers in memory,
// which takes as long as this many multiplications.
constexpr int64_t kWorkOfGather = 6;
// Molecules have about half as many atoms as directed bonds.
constexpr int64_t kEdgesOfPair = 2, kNodesOfPair = 1;

std::optional<size_t> FirstOf(const std::vector<double>& factors) {
  const auto found = std::ranges::find_if(factors, [](double factor) { return factor != 0; });
  return found == factors.end() ? std::nullopt : std::optional(static_cast<size_t>(found - factors.begin()));
}

// The number by which `one` is a multiple of `other`.
std::optional<double> Ratio(const std::vector<double>& one, const std::vector<double>& other) {
  const auto first = FirstOf(other);
  if (!first || one[*first] == 0) return std::nullopt;
  const double ratio = one[*first] / other[*first];
  for (size_t i = 0; i < one.size(); ++i)
    if (one[i] != ratio * other[i]) return std::nullopt;
  return ratio;
}

struct Gathered {
  Gather gather;
  int64_t width = 0;
  std::vector<double> factors;
};

std::vector<Gathered> GathersOf(const Rows& rows) {
  std::vector<Gathered> gathers;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const GatherTerm& term : rows[i].sum) {
      auto found = std::ranges::find(gathers, term.gather, &Gathered::gather);
      if (found == gathers.end()) {
        gathers.push_back({term.gather, rows[i].width, std::vector<double>(rows.size())});
        found = gathers.end() - 1;
      }
      found->factors[i] += term.factor;
    }
  }
  return gathers;
}

}  // namespace

std::optional<std::vector<Product>> FewerProducts(const Rows& rows, int64_t width) {
  std::vector<Product> products;
  int64_t before = 0, after = 0, columns = 0;
  for (const Columns& part : rows) {
    columns += part.width;
    if (!part.sum.empty()) before += kEdgesOfPair * part.width;
  }
  for (Gathered& gathered : GathersOf(rows)) {
    if (!FirstOf(gathered.factors)) return std::nullopt;  // x - x
    after += kWorkOfGather;
    double ratio = 1;
    const auto product = std::ranges::find_if(products, [&](const Product& other) {
      const auto found = other.table == gathered.gather.table ? Ratio(gathered.factors, other.factors) : std::nullopt;
      if (found) ratio = *found;
      return found.has_value();
    });
    if (product != products.end()) {
      product->uses.push_back({gathered.gather, ratio});
      continue;
    }
    products.push_back({gathered.gather.table, gathered.width, std::move(gathered.factors), {{gathered.gather}}});
    if (!gathered.gather.small) after += kNodesOfPair * gathered.width;
  }
  if (products.empty() || columns != width || after >= before) return std::nullopt;
  return products;
}

}  // namespace permafrost::program
