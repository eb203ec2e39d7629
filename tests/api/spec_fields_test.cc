// Checks by reflection that every field of a job's spec survives the way from the wire through the domain and the
// database's column and back, with a value other than its default. A field of the proto that one of them drops fails
// here by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "complete_specs.h"
#include "job_specs.h"
#include "jobs/job_row.h"
#include "message_leaves.h"

namespace permafrost::api {
namespace {

TEST(SpecFields, EachGoesThroughDomainAndDatabaseAndBack) {
  std::map<std::string, std::set<std::string>> taken;  // the values of each field that came back
  for (const std::string& text : kJobSpecs) {
    const v1::JobSpec base = Complete(text);
    const auto base_spec = SpecOf(base);
    ASSERT_TRUE(base_spec.ok()) << base_spec.status();
    for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
      taken[leaf.name].insert(leaf.Text(base));
      for (const auto& change : ChangesOf(base, leaf)) {
        const auto spec = SpecOf(change);
        // A value that this spec refuses suits another spec. A value that changes nothing was not accepted.
        if (!spec.ok() || *spec == *base_spec) continue;
        SCOPED_TRACE(leaf.name + ": " + leaf.Text(change) + " in " + text);
        EXPECT_EQ(leaf.Text(WireOf(*spec)), leaf.Text(change)) << "as it is told";
        const auto stored = jobs::SpecFromJson(jobs::ToJson(jobs::SpecColumn{.spec = *spec}));
        ASSERT_TRUE(stored.ok()) << stored.status();
        EXPECT_EQ(stored->spec, *spec) << "as the database keeps it";
        EXPECT_EQ(leaf.Text(WireOf(stored->spec)), leaf.Text(change)) << "as it is told after a restart";
        taken[leaf.name].insert(leaf.Text(change));
      }
    }
  }
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
    const auto* const type = leaf.field()->enum_type();
    // All values of an enum but the first, which stands for the default, must be accepted.
    EXPECT_GE(taken[leaf.name].size(), type == nullptr ? 2 : type->value_count() - 1)
        << leaf.name << ": only " << testing::PrintToString(taken[leaf.name]);
  }
}

}  // namespace
}  // namespace permafrost::api
