#include "train/tasks/categories.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/edge_rows.h"
#include "data/store/other_features.h"
#include "nn/models/model.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

using data::Categories;
using data::CategoryTable;
using data::FeatureCategories;
using data::GraphSetSummary;
using data::GraphSummary;

constexpr char kDatasetField[] = "dataset";

bool ReadsNodeTables(const spec::TrainOptions& options, const data::ImportedSummary& summary) {
  const spec::NodeInputs inputs = options.model.node_inputs;
  // Integer features of one large graph's nodes are numbers, not categories.
  const auto* set = std::get_if<GraphSetSummary>(&summary);
  if (set == nullptr) return false;
  // A program looks up the source's own numbers, so categories are not renumbered for it.
  if (spec::IsProgram(options) && data::IsCategorical(set->node_features.type)) return false;
  return inputs != spec::NodeInputs::kDegree && inputs != spec::NodeInputs::kConstant;
}

bool ReadsEdgeTables(const spec::TrainOptions& options, const data::ImportedSummary& summary) {
  if (spec::TraitsOf(options.model.architecture).edges == spec::EdgeUse::kNone || spec::IsProgram(options))
    return false;
  const auto* graph = std::get_if<GraphSummary>(&summary);
  return graph == nullptr || EdgeInputsOf(options.model, *graph) == data::EdgeInputs::kFeatures;
}

int64_t RowsOf(const data::ImportedSummary& summary, bool of_edges) {
  if (const auto* set = std::get_if<GraphSetSummary>(&summary)) return of_edges ? set->all.edges : set->all.nodes;
  const auto& graph = std::get<GraphSummary>(summary);
  return of_edges ? graph.edges : graph.nodes;
}

const data::FeatureSummary& FeaturesOf(const data::ImportedSummary& summary, bool of_edges) {
  return std::visit(
      [of_edges](const auto& s) -> const data::FeatureSummary& { return of_edges ? s.edge_features : s.node_features; },
      summary);
}

data::FeatureSummary& FeaturesOf(data::ImportedSummary& summary, bool of_edges) {
  return std::visit(
      [of_edges](auto& s) -> data::FeatureSummary& { return of_edges ? s.edge_features : s.node_features; }, summary);
}

std::string_view TableName(bool of_edges) { return of_edges ? "edge" : "node"; }

// Returns a text such as "7 in 3 rows" about the first value, with the number of further values if there are any.
std::string TellValues(const CategoryTable& own, const data::CountedValues& values) {
  const auto& [value, rows] = values.front();
  std::string text = absl::StrCat(data::NameOfValue(own, value), " in ", rows, rows == 1 ? " row" : " rows");
  if (values.size() == 1) return text;
  int64_t others = 0;
  for (const auto& each : values) others += each.second;
  others -= rows;
  return absl::StrCat(text, " (and ", values.size() - 1, " other ", values.size() == 2 ? "value" : "values", " in ",
                      others, others == 1 ? " row)" : " rows)");
}

int64_t PlainColumns(const FeatureCategories& features) {
  int64_t plain = features.width;
  for (const CategoryTable& table : features.tables) plain -= std::max<int64_t>(table.columns, 1);
  return plain;
}

// Returns the reason why two columns cannot mean the same, e.g. "is a degree, and that of the weights a label"; empty
// if they can.
std::string WhyNot(const CategoryTable& own, const CategoryTable& known) {
  const auto name = [](const CategoryTable& table) {
    const std::string_view origin = data::kCategoryOriginNames.Name(table.origin);
    return absl::StrCat("a ", AbslView(origin), table.one_hot() ? " as one-hot columns" : " as one column");
  };
  const bool degree = own.origin == data::CategoryOrigin::kDegree;
  if (degree != (known.origin == data::CategoryOrigin::kDegree) || own.one_hot() != known.one_hot()) {
    return absl::StrCat("is ", name(own), ", and that of the weights ", name(known));
  }
  if (own.too_many || known.too_many) {
    return absl::StrCat(own.too_many ? "has" : "had in training", " more than ", data::kMaxCategoryValues,
                        " different values, which no import keeps: they cannot be told from those ",
                        own.too_many ? "of the weights" : "that it has");
  }
  return "";
}

class Translator {
 public:
  Translator(const CategoryPass& pass, Violations& violations) : pass_(pass), violations_(violations) {}

  absl::StatusOr<TranslatedDataset> Run() {
    own_summary_ = data::SummaryOf(pass_.dataset);
    PF_ASSIGN_OR_RETURN(own_, data::CategoriesOf(pass_.dataset));
    result_.trained = pass_.trained_on ? *pass_.trained_on : own_summary_;
    const bool same_kind = result_.trained.index() == own_summary_.index();
    data::Translation translation;
    if (same_kind && CheckKnown()) {
      for (const bool of_edges : {false, true}) {
        if (!(of_edges ? ReadsEdgeTables(pass_.options, result_.trained)
                       : ReadsNodeTables(pass_.options, result_.trained))) {
          continue;
        }
        PF_RETURN_IF_ERROR(TranslateFeatures(of_edges, of_edges ? translation.edge : translation.node));
      }
      if (!pass_.options.links.enabled) PF_RETURN_IF_ERROR(TranslateClasses(translation.classes));
    }
    PF_RETURN_IF_ERROR(Apply(std::move(translation)));
    return std::move(result_);
  }

 private:
  void Add(const std::string& what) { violations_.Add(kDatasetField, what); }

  // Returns true if the dataset and the weights have tables, or if no table is needed. Otherwise adds a violation.
  bool CheckKnown() {
    const bool needed = ReadsCategories(pass_.options, own_summary_) ||
                        (pass_.trained_on && ReadsCategories(pass_.options, *pass_.trained_on));
    if (!needed || (own_ && pass_.known)) return true;
    if (!own_) {
      Add("it was imported by an older version, which did not keep what its categories stand for in the source: import "
          "it again");
    } else {
      Add("the weights are of an older version, which did not keep what the categories that they were trained on stand "
          "for in their source: import that dataset again, and train on it anew");
    }
    return false;
  }

  // Returns the categories that the weights know. If an older version made the weights, they list no categories. The
  // result then has only the type and width, which come from the dataset that the weights were trained on. If that
  // dataset is unknown too, returns nullopt.
  std::optional<FeatureCategories> Known(bool of_edges) const {
    if (pass_.known) return of_edges ? pass_.known->edge : pass_.known->node;
    if (!pass_.trained_on) return std::nullopt;
    const data::FeatureSummary& features = FeaturesOf(*pass_.trained_on, of_edges);
    return FeatureCategories{.type = features.type, .width = features.width, .tables = {}};
  }

  absl::Status TranslateFeatures(bool of_edges, std::optional<data::FeatureTranslation>& out) {
    const std::optional<FeatureCategories> known = Known(of_edges);
    if (!known) return absl::OkStatus();
    const data::FeatureSummary& features = FeaturesOf(own_summary_, of_edges);
    FeatureCategories own{.type = features.type, .width = features.width, .tables = {}};
    if (own_) own.tables = of_edges ? own_->edge.tables : own_->node.tables;
    data::FeatureTranslation translation{.own = std::move(own), .known = *known, .maps = {}};
    if (RowsOf(own_summary_, of_edges) == 0) {
      // A table without rows has no columns to compare.
      translation.own.tables.clear();
      if (translation.own.type != known->type || translation.own.width != known->width) out = std::move(translation);
      return absl::OkStatus();
    }
    if (translation.own.tables.empty() && known->tables.empty()) return absl::OkStatus();
    if (!ArePairs(of_edges, translation)) return absl::OkStatus();
    for (size_t t = 0; t < known->tables.size(); ++t) {
      translation.maps.emplace_back(translation.own.tables[t], known->tables[t]);
    }
    // Translated integers keep the type that they have in the dataset; only their values change.
    translation.known.type = IsCategorical(translation.own.type) ? translation.own.type : known->type;
    for (size_t t = 0; t < translation.maps.size(); ++t) PF_RETURN_IF_ERROR(TellUnknown(of_edges, translation, t));
    out = std::move(translation);
    return absl::OkStatus();
  }

  // Returns true if each of the dataset's tables can be matched with the weights' table of the same index. CheckKnows
  // reports differences in the number of columns and in types.
  bool ArePairs(bool of_edges, const data::FeatureTranslation& translation) {
    const FeatureCategories &own = translation.own, &known = translation.known;
    if (data::IsCategorical(own.type) != data::IsCategorical(known.type)) return false;
    if (own.tables.size() != known.tables.size() || PlainColumns(own) != PlainColumns(known)) {
      if (own.width == known.width || own.tables.size() != known.tables.size()) {
        Add(absl::StrCat("its ", AbslView(TableName(of_edges)), " features have ", own.tables.size(),
                         " categories and ", PlainColumns(own), " other columns, and the weights were trained on ",
                         known.tables.size(), " and ", PlainColumns(known)));
      }
      return false;
    }
    bool all = true;
    for (size_t t = 0; t < own.tables.size(); ++t) {
      const std::string why = WhyNot(own.tables[t], known.tables[t]);
      if (why.empty()) continue;
      all = false;
      Add(absl::StrCat("its ", AbslView(TableName(of_edges)), " ", data::NameOfTable(own.tables[t], t), " ", why));
    }
    return all;
  }

  absl::Status TellUnknown(bool of_edges, const data::FeatureTranslation& translation, size_t table) {
    if (translation.maps[table].unknown_values().empty()) return absl::OkStatus();
    data::CountedValues values;
    if (const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&pass_.dataset)) {
      PF_ASSIGN_OR_RETURN(values, data::CountUnknown(**set, of_edges, translation, table));
    } else {
      const auto& graph = std::get<std::shared_ptr<const data::Graph>>(pass_.dataset);
      PF_ASSIGN_OR_RETURN(values, data::CountUnknown(*graph, translation, table));
    }
    if (values.empty()) return absl::OkStatus();
    const CategoryTable& own = translation.own.tables[table];
    const std::string what = absl::StrCat(AbslView(TableName(of_edges)), " ", data::NameOfTable(own, table),
                                          " has the value ", TellValues(own, values));
    if (!pass_.allow_unknown) {
      Add(absl::StrCat(
          "its ", what,
          ", which the dataset that the weights were trained on has nowhere; accepted: values that it has, "
          "or allow_unknown_categories, by which such a value contributes nothing"));
      return absl::OkStatus();
    }
    result_.notes.push_back(
        absl::StrCat(what, ", which the dataset that the weights were trained on has nowhere: it contributes nothing"));
    if (!own.one_hot()) {
      result_.zero_rows.push_back(
          absl::StrCat(AbslView(TableName(of_edges)), "_encoder.embeddings.", table, ".weight"));
    }
    return absl::OkStatus();
  }

  // Returns the table of classes. If an older version made the weights or the dataset, makes the table from the
  // summary, which has the classes only if they were renumbered.
  static std::optional<CategoryTable> ClassesOf(const std::optional<Categories>& categories,
                                                const data::ImportedSummary* summary) {
    if (categories && categories->classes) return categories->classes;
    const auto* set = summary == nullptr ? nullptr : std::get_if<GraphSetSummary>(summary);
    if (set == nullptr || set->class_values.empty()) return std::nullopt;
    return CategoryTable{.origin = data::CategoryOrigin::kClass, .ranked = true, .values = set->class_values};
  }

  absl::Status TranslateClasses(std::optional<data::Translation::OfClasses>& out) {
    const auto own = ClassesOf(own_, &own_summary_);
    const auto known = ClassesOf(pass_.known, pass_.trained_on ? &*pass_.trained_on : nullptr);
    if (!own || !known || own->too_many || known->too_many) return absl::OkStatus();
    const bool over_classes = spec::HasClasses(pass_.options.loss);
    // Labels that are measures need no translation, unless classes of the dataset or of the weights were renumbered.
    if (!over_classes && !own->ranked && !known->ranked) return absl::OkStatus();
    data::CategoryMap map(*own, *known);
    if (!map.unknown_values().empty()) {
      absl::StatusOr<data::CountedValues> values =
          std::visit([&](const auto& store) { return data::CountUnknownClasses(*store, *own, map); }, pass_.dataset);
      PF_RETURN_IF_ERROR(values.status());
      if (!values->empty()) {
        const std::string what = absl::StrCat("labels have the class ", TellValues(*own, *values));
        const bool ignored = pass_.allow_unknown && pass_.predictions;
        if (ignored) {
          result_.notes.push_back(absl::StrCat(what, ", which the weights were not trained on: it is no label"));
        } else {
          Add(absl::StrCat(
              "its ", what,
              ", which the dataset that the weights were trained on has nowhere; accepted: classes that it "
              "has, or predictions with allow_unknown_categories, which leave it out"));
        }
      }
    }
    out = data::Translation::OfClasses{.known = *known, .map = std::move(map)};
    return absl::OkStatus();
  }

  absl::Status Apply(data::Translation translation) {
    const std::optional<data::FeatureTranslation> node = translation.node, edge = translation.edge;
    const bool classes = translation.classes.has_value();
    result_.dataset = pass_.dataset;
    // After a violation, the caller returns an error and needs no dataset.
    const bool makes = violations_.empty();
    if (const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&pass_.dataset)) {
      if (makes && (node || edge || classes)) {
        PF_RETURN_IF_ERROR(CheckRoom(data::BytesOf(**set, translation)));
        PF_ASSIGN_OR_RETURN(result_.dataset, data::Translate(*set, std::move(translation)));
      }
    } else if (makes && (edge || classes)) {
      const auto& graph = std::get<std::shared_ptr<const data::Graph>>(pass_.dataset);
      PF_ASSIGN_OR_RETURN(result_.dataset, data::Translate(graph, std::move(translation)));
    }
    const data::ImportedSummary now = data::SummaryOf(result_.dataset);
    for (const bool of_edges : {false, true}) {
      if (of_edges ? edge.has_value() : node.has_value()) {
        FeaturesOf(result_.trained, of_edges) = FeaturesOf(now, of_edges);
      } else if (const auto known = Known(of_edges);
                 known && !pass_.trained_on && known->tables.empty() && known->width > 0) {
        // The training dataset of the weights is gone, but the weights know the type of its columns.
        FeaturesOf(result_.trained, of_edges).type = known->type;
        FeaturesOf(result_.trained, of_edges).width = known->width;
      }
    }
    if (classes) {
      TakeClasses(now);
    } else if (auto* set = std::get_if<GraphSetSummary>(&result_.trained);
               set != nullptr && pass_.known && pass_.known->classes && pass_.known->classes->ranked) {
      set->class_values = pass_.known->classes->values;
    }
    return absl::OkStatus();
  }

  void TakeClasses(const data::ImportedSummary& now) {
    const auto take = [](const auto& from, auto& to) {
      to.integer_labels = from.integer_labels;
      to.min_label = from.min_label;
      to.max_label = from.max_label;
    };
    if (auto* set = std::get_if<GraphSetSummary>(&result_.trained)) {
      const auto& from = std::get<GraphSetSummary>(now);
      take(from, *set);
      set->labels_known = true;
      set->class_values = from.class_values;
    } else {
      take(std::get<GraphSummary>(now), std::get<GraphSummary>(result_.trained));
    }
  }

  absl::Status CheckRoom(uint64_t bytes) const {
    const uint64_t held = ResidentBytes();
    if (bytes <= pass_.process_limit - std::min(held, pass_.process_limit)) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the dataset's categories are other numbers than those of the weights, and reading them so takes "
        "%.0f MB beside the %.0f MB that the server holds; its limit is %.0f MB",
        static_cast<double>(bytes) / 1e6, static_cast<double>(held) / 1e6,
        static_cast<double>(pass_.process_limit) / 1e6));
  }

  const CategoryPass& pass_;
  Violations& violations_;
  data::ImportedSummary own_summary_;
  std::optional<Categories> own_;
  TranslatedDataset result_;
};

// Moves each row of weights to the place of its category in another dataset.
class RowMover {
 public:
  RowMover(const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file)
      : model_(model), file_(file) {}

  const MovedRows& moved() const { return moved_; }

  absl::Status MoveFeatures(std::string_view encoder, const FeatureCategories& from, const FeatureCategories& to) {
    // If the features have another form, tensors of the model have other shapes than in the file. The code that loads
    // the file then refuses these tensors or leaves them out.
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

  // Moves the output rows of a model on sets.
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
  // `rows` holds a pair (to, from) of row numbers for each value that both tables have. `taken` counts the rows that
  // are taken over, and `fresh` the rows that are initialised afresh.
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

  // Pairs the columns that are not categories.
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

  // Returns false if the file or the model has no tensor `name`, or if the tensor's size is not that of its table.
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
    // A meta tensor needs only its sizes, and takes no memory.
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

Categories CategoriesRead(const spec::TrainOptions& options, const data::ImportedSummary& summary, Categories all) {
  if (!ReadsNodeTables(options, summary)) all.node = {};
  if (!ReadsEdgeTables(options, summary)) all.edge = {};
  const bool over_classes = spec::HasClasses(options.loss);
  if (options.links.enabled || Walks(options) || (all.classes && !over_classes && !all.classes->ranked)) {
    all.classes.reset();
  }
  return all;
}

bool ReadsCategories(const spec::TrainOptions& options, const data::ImportedSummary& summary) {
  if (Walks(options)) return false;
  const auto* set = std::get_if<GraphSetSummary>(&summary);
  for (const bool of_edges : {false, true}) {
    if (!(of_edges ? ReadsEdgeTables(options, summary) : ReadsNodeTables(options, summary))) continue;
    if (RowsOf(summary, of_edges) == 0) continue;
    if (data::IsCategorical(FeaturesOf(summary, of_edges).type)) return true;
    if (set == nullptr) continue;
    if (absl::StrContains(of_edges ? set->edge_feature_origin : set->node_feature_origin, "one-hot")) return true;
  }
  return false;
}

absl::StatusOr<TranslatedDataset> TranslateCategories(const CategoryPass& pass, Violations& violations) {
  return Translator(pass, violations).Run();
}

absl::StatusOr<MovedRows> MoveRows(const data::Categories& from, const data::Categories& to,
                                   const std::vector<nn::NamedTensor>& model, std::vector<nn::NamedTensor>& file) {
  RowMover mover(model, file);
  PF_RETURN_IF_ERROR(mover.MoveFeatures("node", from.node, to.node));
  PF_RETURN_IF_ERROR(mover.MoveFeatures("edge", from.edge, to.edge));
  if (from.classes && to.classes) mover.MoveClasses(*from.classes, *to.classes);
  return mover.moved();
}

}  // namespace permafrost::train
