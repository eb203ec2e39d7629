// Compares pairs of values with a golden file: the server accepts each value alone, and refuses them together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "complete_specs.h"
#include "golden.h"
#include "probes.h"

namespace permafrost::api {
namespace {

struct Change {
  Leaf leaf;
  Probe probe;
  std::string name() const { return absl::StrCat(leaf.name, ": ", probe.name); }
};

// Returns the changes of single fields that the server accepts and that make another job of the spec. It tries every
// value of an enum, and the first two accepted values of other fields.
std::vector<Change> TakenChanges(const v1::JobSpec& base) {
  const auto job = SpecOf(base);
  EXPECT_TRUE(job.ok()) << job.status();
  std::vector<Change> taken;
  for (const Leaf& leaf : LeavesAndHoldersOf(v1::JobSpec::descriptor())) {
    const bool is_enum = leaf.field()->enum_type() != nullptr && !leaf.field()->is_repeated();
    size_t count = 0;
    for (const Probe& probe : Probes(*leaf.field(), ProbeTexts(*leaf.field()))) {
      const auto changed = SpecOf(With(base, leaf, probe));
      if (!changed.ok() || *changed == *job || (!is_enum && count == 2)) continue;
      taken.push_back({leaf, probe});
      ++count;
    }
  }
  return taken;
}

// Returns true if both are the same field, or if one contains the other.
bool Overlap(const Leaf& a, const Leaf& b) {
  const size_t depth = std::min(a.path.size(), b.path.size());
  return std::equal(a.path.begin(), a.path.begin() + static_cast<std::ptrdiff_t>(depth), b.path.begin());
}

struct Refusals {
  int count = 0;
  std::string first;
};

TEST(Rejections, OfPairsOfValuesThatAreTakenAlone) {
  std::string text =
      "Two changes of a spec of which the server takes each and refuses both: for every violation how many pairs "
      "bring\n"
      "it, and the first of them.\n";
  for (const std::string& spec : kJobSpecs) {
    const v1::JobSpec base = Bare(spec);
    const std::vector<Change> changes = TakenChanges(base);
    std::map<std::string, Refusals> refusals;
    int pairs = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
      const v1::JobSpec changed = With(base, changes[i].leaf, changes[i].probe);
      for (size_t j = i + 1; j < changes.size(); ++j) {
        if (Overlap(changes[i].leaf, changes[j].leaf)) continue;
        ++pairs;
        const auto job = SpecOf(With(changed, changes[j].leaf, changes[j].probe));
        for (const FieldViolation& violation : GetViolations(job.status())) {
          Refusals& of_text = refusals[absl::StrCat(violation.field, ": ", violation.description)];
          if (++of_text.count == 1) of_text.first = absl::StrCat(changes[i].name(), " and ", changes[j].name());
        }
      }
    }
    absl::StrAppend(&text, "\n", spec, "\n", changes.size(), " changes, ", pairs, " pairs\n");
    for (const auto& [violation, of_text] : refusals) {
      absl::StrAppend(&text, " ", violation, "\n  ", of_text.count, ", as ", of_text.first, "\n");
    }
  }
  ExpectGolden("api/goldens/pair_rejections.txt", text);
}

}  // namespace
}  // namespace permafrost::api
