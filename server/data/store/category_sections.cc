#include "data/store/category_sections.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/store/store_error.h"

namespace permafrost::data {
namespace {

// The tables that the import numbered, or the others.
Categories OnlyNumbered(const Categories& all, bool numbered) {
  // Degrees are counted by the import, though their column looks like any other.
  const auto belongs = [numbered](const CategoryTable& table) {
    return numbered == (table.renumbered() || table.origin == CategoryOrigin::kDegree);
  };
  Categories some = all;
  for (FeatureCategories* features : {&some.node, &some.edge}) {
    std::erase_if(features->tables, [&](const CategoryTable& table) { return !belongs(table); });
  }
  if (some.classes && !belongs(*some.classes)) some.classes.reset();
  return some;
}

std::string TextOf(const Categories& categories) {
  const bool any = !categories.node.tables.empty() || !categories.edge.tables.empty() || categories.classes;
  return any ? CategoriesToJson(categories) : "";
}

absl::Status Merge(FeatureCategories from, FeatureCategories& to) {
  if (from.type != to.type || from.width != to.width) {
    return absl::DataLossError(
        absl::StrCat("its features have ", from.width, " columns, and those of the summary ", to.width));
  }
  std::ranges::move(from.tables, std::back_inserter(to.tables));
  std::ranges::sort(to.tables, {}, &CategoryTable::column);
  return absl::OkStatus();
}

absl::Status ReadSection(const StoreFile& file, SectionKind kind, Categories& categories) {
  const StoreFile::Section* const section = file.Find(kind);
  if (section == nullptr) return absl::OkStatus();
  const auto guard = file.Guard(*section, nullptr);
  if (!guard->Touch(0, section->bytes.size())) {
    PF_RETURN_IF_ERROR(file.CheckIntact());
    return guard->status();
  }
  const auto text = section->As<char>();
  auto read = CategoriesFromJson(std::string_view(text.data(), text.size()));
  PF_RETURN_IF_ERROR(file.CheckIntact());
  absl::Status status = read.status();
  if (status.ok()) status = Merge(std::move(read->node), categories.node);
  if (status.ok()) status = Merge(std::move(read->edge), categories.edge);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat(file.path().string(), ": ", SectionField(kind, "content")));
  }
  if (read->classes) categories.classes = std::move(read->classes);
  return absl::OkStatus();
}

}  // namespace

CategorySections SectionsOf(const Categories& categories) {
  return {.numbered = TextOf(OnlyNumbered(categories, true)), .seen = TextOf(OnlyNumbered(categories, false))};
}

absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features) {
  for (const SectionKind kind : {SectionKind::kNumberedCategories, SectionKind::kSeenCategories}) {
    PF_RETURN_IF_ERROR(ReadSection(file, kind, features));
  }
  return features;
}

}  // namespace permafrost::data
