#include "spec/import_options.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "base/text.h"
#include "spec/checks.h"

namespace permafrost::spec {
namespace {

void CheckSplit(const ImportOptions& options, FieldChecker& check) {
  if (options.split.find('/') != std::string::npos || options.split == "." || options.split == "..") {
    check.Add("split", absl::StrCat(Quote(options.split), " is not the name of a folder in split/"));
  }
  const auto is_fraction = [](double x) { return x >= 0 && x <= 1; };
  // For a fraction outside [0, 1], the row checks have already added a violation.
  if (!is_fraction(options.train_fraction) || !is_fraction(options.valid_fraction)) return;
  constexpr double kRounding = 1e-9;
  if (const double sum = options.train_fraction + options.valid_fraction; sum > 1 + kRounding) {
    check.Add(
        "valid_fraction",
        absl::StrCat(options.valid_fraction, " and options.train_fraction ", options.train_fraction, " make ", sum,
                     ", more than 1; accepted: both given, together at most 1 (each that is not given is its "
                     "default, ",
                     ImportOptions().train_fraction, " of train_fraction and ", ImportOptions().valid_fraction,
                     " of valid_fraction)"));
  }
}

void CheckColumns(const EdgeListOptions& edges, Violations& violations) {
  const auto count_of = [&edges](EdgeColumn column) { return std::ranges::count(edges.columns, column); };
  for (const EdgeColumn column :
       {EdgeColumn::kSource, EdgeColumn::kTarget, EdgeColumn::kWeight, EdgeColumn::kTimestamp}) {
    const auto count = count_of(column);
    if (count <= 1) continue;
    violations.Add("options.edge_list.columns", absl::StrCat(AbslView(kEdgeColumnNames.Name(column)), " stands ", count,
                                                             " times; once at most is accepted"));
  }
  if ((count_of(EdgeColumn::kSource) > 0) != (count_of(EdgeColumn::kTarget) > 0)) {
    violations.Add("options.edge_list.columns",
                   "source and target stand there both, where all columns are named, or neither, where only those "
                   "after them are");
  }
}

void CheckCharacters(const EdgeListOptions& edges, Violations& violations) {
  const auto refuse_same = [&](std::string_view field, char is, char other, std::string_view why) {
    if (is == '\0' || is != other) return;
    violations.Add(
        field, absl::StrCat(Quote(std::string_view(&is, 1)), " ", AbslView(why), "; another character is accepted"));
  };
  refuse_same("options.edge_list.delimiter", edges.delimiter, edges.comment, "begins comments");
  refuse_same("options.edge_list.quote", edges.quote, edges.delimiter, "stands between cells");
  refuse_same("options.edge_list.quote", edges.quote, edges.comment, "begins comments");
}

void CheckMemory(uint64_t bytes, FieldChecker& check) {
  if (bytes == 0 || bytes >= kLeastImportMemory) return;
  check.Add("memory_bytes", absl::StrCat(bytes, " is neither 0 nor at least ", kLeastImportMemory, " (16 MiB)"));
}

std::string_view NameOf(ImportFormat format) { return kImportFormatNames.Name(format); }

std::string NamesOf(uint32_t formats) {
  std::string names;
  for (const auto& [format, name] : kImportFormatNames.rows) {
    if ((formats & Formats(format)) != 0) absl::StrAppend(&names, names.empty() ? "" : ", ", AbslView(name));
  }
  return names;
}

void RefuseUnused(const std::string& field, ImportFormat format, uint32_t used_by, Violations& violations) {
  violations.Add(field, absl::StrCat("the format ", AbslView(NameOf(format)), " does not use it; accepted with ",
                                     NamesOf(used_by)));
}

template <HasFields T>
void CheckUse(ImportFormat format, const T& options, const std::string& prefix, Violations& violations) {
  VisitFields(Options<T>(), [&](const Field& field, auto member, const auto&... /*names*/) {
    using M = std::remove_cvref_t<decltype(options.*member)>;
    if constexpr (HasFields<M>) {
      CheckUse(format, options.*member, absl::StrCat(prefix, field.name, "."), violations);
    } else if (field.formats != 0 && (field.formats & Formats(format)) == 0 && options.*member != T().*member) {
      RefuseUnused(prefix + field.name, format, field.formats, violations);
    }
  });
}

}  // namespace

absl::Status CheckImportOptions(const ImportOptions& options) {
  Violations violations;
  FieldChecker check("options.", violations);
  if (options.source.empty()) check.Add("source_path", "empty; name a file or a directory on the server");
  if (options.tu.one_hot && (options.tu.max_degree < 1 || options.tu.max_degree > kMostOneHotDegree)) {
    check.Add("tu.max_degree", absl::StrCat(options.tu.max_degree, " is outside 1..", kMostOneHotDegree, ", one-hot"));
  }
  RowCheck(check, nullptr).Visit(options, options);
  CheckSplit(options, check);
  CheckColumns(options.edge_list, violations);
  CheckCharacters(options.edge_list, violations);
  CheckImportFormat(options.format, options, violations);
  CheckMemory(options.memory_bytes, check);
  return violations.ToStatus();
}

void CheckImportFormat(ImportFormat format, const ImportOptions& options, Violations& violations) {
  if (format == ImportFormat::kAuto) return;
  if (format == ImportFormat::kTu && options.inverse_edges == InverseEdges::kAdd) {
    RefuseUnused("options.inverse_edges", format, kForeign & ~Formats(ImportFormat::kTu), violations);
  }
  CheckUse(format, options, "options.", violations);
}

}  // namespace permafrost::spec
