// Rows of weights moved to where the categories of another dataset are.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/categories.h"
#include "train/tasks/categories.h"

namespace permafrost::train {
namespace {

using data::CategoryTable;
using data::FeatureCategories;

class RowMover {
 public:
  RowMover(const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file)
      : model_(model), file_(file) {}

  const MovedRows& moved() const { return moved_; }

  absl::Status MoveFeatures(std::string_view encoder, const FeatureCategories& from, const FeatureCategories& to) {
    // Features of another form have weights of other shapes, which are told or left as such.
    if (from == to || from.tables.size() != to.tables.size()) return absl::OkStatus();
    Pairs columns{.rows = PlainPairs(from, to)};
    bool one_hot = false;
    for (size_t t = 0; t < to.tables.size(); ++t) {
      const CategoryTable &own = to.tables[t], &known = from.tables[t];
      const auto is_degree = [](const CategoryTable& table) { return table.origin == data::CategoryOrigin::kDegree; };
      if (own.one_hot() != known.one_hot() || is_degree(own) != is_degree(known)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the dataset's ", AbslView(encoder), " ", data::NameOfTable(own, t), " is another kind of category than ",
            data::NameOfTable(known, t), ", which the weights were trained on"));
      }
      if (own.too_many || known.too_many) continue;
      const Pairs pairs = PairsOf(own, known);
      if (own.one_hot()) {
        one_hot = true;
        for (const auto& [to_row, from_row] : pairs.rows) {
          columns.rows.emplace_back(own.column + to_row, known.column + from_row);
        }
        columns.taken += pairs.taken;
        columns.fresh += pairs.fresh;
      } else {
        Move(absl::StrCat(AbslView(encoder), "_encoder.embeddings.", t, ".weight"), /*dimension=*/0,
             known.num_categories(), own.num_categories(), pairs);
      }
    }
    if (one_hot) {
      Move(absl::StrCat(AbslView(encoder), "_encoder.linear.weight"), /*dimension=*/1, from.width, to.width, columns);
    }
    return absl::OkStatus();
  }

  // The outputs of a set's model.
  void MoveClasses(const CategoryTable& from, const CategoryTable& to) {
    if (from == to || from.too_many || to.too_many) return;
    const int64_t known = from.num_categories(), own = to.num_categories();
    const int64_t outputs = RowsOf("head.2.weight");
    if (outputs != own || outputs <= 1) {
      moved_.other_classes = outputs == 1 && from.values != to.values;
      return;
    }
    const Pairs pairs = PairsOf(to, from);
    Move("head.2.weight", 0, known, own, pairs);
    Rewrite("head.2.bias", 0, known, own, pairs.rows);
  }

 private:
  // (to, from) of each value that both have, and how many of a table are taken or begin anew.
  struct Pairs {
    std::vector<std::pair<int64_t, int64_t>> rows;
    int64_t taken = 0, fresh = 0;
  };
  static Pairs PairsOf(const CategoryTable& to, const CategoryTable& from) {
    const data::CategoryMap map(to, from);
    Pairs pairs;
    for (const int64_t value : to.values) {
      const int64_t category = to.CategoryOf(value).value_or(0);
      if (const int64_t known = map.To(category); known != map.unknown()) pairs.rows.emplace_back(category, known);
    }
    pairs.fresh = static_cast<int64_t>(map.unknown_values().size());
    pairs.taken = std::ssize(pairs.rows);
    return pairs;
  }

  // Columns that are no categories.
  static std::vector<std::pair<int64_t, int64_t>> PlainPairs(const FeatureCategories& from,
                                                             const FeatureCategories& to) {
    const auto plain = [](const FeatureCategories& features) {
      std::vector<bool> is(static_cast<size_t>(features.width), true);
      for (const CategoryTable& table : features.tables) {
        std::fill_n(is.begin() + table.column, std::max<int64_t>(table.columns, 1), false);
      }
      std::vector<int64_t> columns;
      for (size_t c = 0; c < is.size(); ++c) {
        if (is[c]) columns.push_back(static_cast<int64_t>(c));
      }
      return columns;
    };
    const std::vector<int64_t> own = plain(to), known = plain(from);
    std::vector<std::pair<int64_t, int64_t>> pairs;
    if (own.size() != known.size()) return pairs;
    for (size_t i = 0; i < own.size(); ++i) pairs.emplace_back(own[i], known[i]);
    return pairs;
  }

  static const nn::NamedTensor* Find(const std::vector<nn::NamedTensor>& tensors, std::string_view name) {
    const auto found = std::ranges::find(tensors, name, &nn::NamedTensor::name);
    return found == tensors.end() ? nullptr : &*found;
  }
  int64_t RowsOf(std::string_view name) const {
    const nn::NamedTensor* const tensor = Find(model_, name);
    return tensor == nullptr || tensor->value.dim() == 0 ? 0 : tensor->value.size(0);
  }

  void Move(const std::string& name, int64_t dimension, int64_t from_size, int64_t to_size, const Pairs& pairs) {
    if (!Rewrite(name, dimension, from_size, to_size, pairs.rows)) return;
    moved_.taken += pairs.taken;
    moved_.fresh += pairs.fresh;
  }

  // False: one of the two has no such tensor, or it is of another size than the tables say.
  bool Rewrite(const std::string& name, int64_t dimension, int64_t from_size, int64_t to_size,
               const std::vector<std::pair<int64_t, int64_t>>& pairs) {
    const nn::NamedTensor* const own = Find(model_, name);
    const auto known = std::ranges::find(file_, name, &nn::NamedTensor::name);
    if (own == nullptr || known == file_.end() || own->value.dim() != known->value.dim() ||
        own->value.dim() <= dimension || own->value.size(dimension) != to_size ||
        known->value.size(dimension) != from_size) {
      return false;
    }
    const at::NoGradGuard no_grad;
    // Sizes are enough where nothing is computed, and take no memory.
    if (own->value.is_meta()) {
      std::vector<int64_t> sizes = known->value.sizes().vec();
      sizes[static_cast<size_t>(dimension)] = to_size;
      known->value = at::empty(sizes, known->value.options().device(at::kMeta));
      return true;
    }
    if (own->value.scalar_type() != known->value.scalar_type()) return false;
    for (int64_t d = 0; d < own->value.dim(); ++d) {
      if (d != dimension && own->value.size(d) != known->value.size(d)) return false;
    }
    std::vector<int64_t> to, from;
    for (const auto& [to_row, from_row] : pairs) {
      to.push_back(to_row);
      from.push_back(from_row);
    }
    at::Tensor rows = own->value.detach().to(at::kCPU).clone();
    rows.index_copy_(dimension, at::tensor(to, at::kLong),
                     known->value.index_select(dimension, at::tensor(from, at::kLong)));
    known->value = rows;
    return true;
  }

  const std::vector<nn::NamedTensor>& model_;
  std::vector<nn::NamedTensor>& file_;
  MovedRows moved_;
};

}  // namespace

absl::StatusOr<MovedRows> MoveRows(const data::Categories& from, const data::Categories& to,
                                   const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file) {
  RowMover mover(model, file);
  PF_RETURN_IF_ERROR(mover.MoveFeatures("node", from.node, to.node));
  PF_RETURN_IF_ERROR(mover.MoveFeatures("edge", from.edge, to.edge));
  if (from.classes && to.classes) mover.MoveClasses(*from.classes, *to.classes);
  return mover.moved();
}

}  // namespace permafrost::train
