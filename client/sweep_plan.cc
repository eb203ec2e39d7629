#include "client/sweep_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/spec_rows.h"

namespace permafrost::client {
namespace {

constexpr size_t kMostValues = 10'000;

// "2..5" as 2, 3, 4, 5; anything else as it is.
absl::Status AddValues(const std::string& text, std::vector<std::string>& values) {
  const size_t dots = text.find("..");
  int64_t first = 0, last = 0;
  const bool range = dots != std::string::npos && absl::SimpleAtoi(text.substr(0, dots), &first) &&
                     absl::SimpleAtoi(text.substr(dots + 2), &last);
  if (!range) {
    values.push_back(text);
    return absl::OkStatus();
  }
  if (last < first || static_cast<uint64_t>(last) - static_cast<uint64_t>(first) >= kMostValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no range of 1 to ", kMostValues, " rising numbers"));
  }
  for (int64_t value = first; value <= last; ++value) values.push_back(absl::StrCat(value));
  return absl::OkStatus();
}

// The values of job `index`.
std::vector<std::string> ValuesAt(const std::vector<SweepAxis>& axes, bool side_by_side, size_t index) {
  std::vector<std::string> values(axes.size());
  for (size_t a = axes.size(); a > 0; --a) {
    const std::vector<std::string>& all = axes[a - 1].values;
    values[a - 1] = all[side_by_side ? index : index % all.size()];
    if (!side_by_side) index /= all.size();
  }
  return values;
}

constexpr char kBetweenItems = ':';

// `text`: as the field's flag takes it, but that a list has ':' between its items.
absl::Status SetFromText(const SpecPath& path, const std::string& text, v1::JobSpec& spec) {
  const google::protobuf::FieldDescriptor& field = *path.back();
  std::vector<std::string> values = {text};
  if (field.is_repeated()) values = absl::StrSplit(text, kBetweenItems);
  for (const std::string& value : values) {
    const std::string refusal = RefusalOf(field, value, kBetweenItems);
    if (!refusal.empty()) return absl::InvalidArgumentError(absl::StrCat(PathName(path), ": ", refusal));
  }
  SetSpecField(path, values, spec);
  return absl::OkStatus();
}

constexpr std::string_view kNegatives = "negatives";

// Models have two fields for one flag: which of them is meant is known where the model is.
absl::Status CheckNegatives(const std::vector<SweepAxis>& axes) {
  const auto is_negatives = [](const SweepAxis& axis) { return axis.name == kNegatives; };
  const auto is_model = [](const SweepAxis& axis) { return PathName(axis.path) == "model.architecture"; };
  const auto model = std::ranges::find_if(axes, is_model), negatives = std::ranges::find_if(axes, is_negatives);
  if (model == axes.end() || negatives == axes.end()) return absl::OkStatus();
  // As it was understood, by the model of the flags.
  const bool of_walks = PathName(negatives->path) == kWalkNegatives;
  v1::JobSpec spec;
  for (const std::string& value : model->values) {
    PF_RETURN_IF_ERROR(SetFromText(model->path, value, spec));
    if (Walks(spec) == of_walks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--vary negatives: is another field of node2vec than of the other "
                     "models; accepted beside --vary ",
                     OneLine(model->name), ": ", AbslView(kWalkNegatives), ", ", AbslView(kLinkNegatives)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepAxis> ParseAxis(const std::string& text, const v1::JobSpec& base) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--vary: '", OneLine(text), "' is not FIELD=VALUE,VALUE,..."));
  }
  SweepAxis axis{.name = text.substr(0, equals), .path = {}, .values = {}};
  auto path = FindSpecField(Walks(base) && axis.name == kNegatives ? kWalkNegatives : axis.name);
  if (!path.ok()) return absl::InvalidArgumentError(absl::StrCat("--vary: ", path.status().message()));
  axis.path = *std::move(path);
  v1::JobSpec scratch;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text.substr(equals + 1), ','))) {
    if (const absl::Status added = AddValues(part, axis.values); !added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--vary ", OneLine(axis.name), ": ", added.message()));
    }
  }
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (const absl::Status set = SetFromText(axis.path, value, scratch); !set.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--vary: ", set.message()));
    }
    if (!seen.insert(value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--vary ", OneLine(axis.name), ": '", OneLine(value), "' stands twice; each is accepted once"));
    }
  }
  return axis;
}

absl::StatusOr<std::vector<SweepJob>> PlanSweep(const v1::JobSpec& base, const std::vector<SweepAxis>& axes,
                                                bool side_by_side, int64_t most) {
  PF_RETURN_IF_ERROR(CheckNegatives(axes));
  uint64_t count = axes.empty() ? 0 : side_by_side ? axes.front().values.size() : 1;
  std::set<std::string> names;
  for (const SweepAxis& axis : axes) {
    if (!names.insert(PathName(axis.path)).second) {
      return absl::InvalidArgumentError(absl::StrCat("--vary: ", PathName(axis.path), " stands twice"));
    }
    if (side_by_side && axis.values.size() != count) {
      return absl::InvalidArgumentError(absl::StrCat("--side-by-side: ", axes.front().name, " has ", count,
                                                     " values and ", axis.name, " has ", axis.values.size(),
                                                     "; equally many are accepted"));
    }
    // So that no product wraps.
    if (!side_by_side) count = std::min<uint64_t>(count * axis.values.size(), kMostValues * kMostValues);
  }
  if (count > static_cast<uint64_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat("--vary makes ", count,
                                                   count >= kMostValues * kMostValues ? " or more" : "",
                                                   " jobs; --max-jobs accepts ", most));
  }
  std::vector<SweepJob> jobs;
  for (uint64_t index = 0; index < count; ++index) {
    SweepJob job{.values = ValuesAt(axes, side_by_side, index), .spec = base};
    for (size_t a = 0; a < axes.size(); ++a) PF_RETURN_IF_ERROR(SetFromText(axes[a].path, job.values[a], job.spec));
    job.spec.set_dataset(WithCollection("datasets", job.spec.dataset()));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

bool IsRepetition(const SpecPath& path) {
  const std::string name = PathName(path);
  return name == "seed" || name == "cross_validation.fold" || name == "cross_validation.seed" ||
         name == "link_prediction.split_seed";
}

}  // namespace permafrost::client
