// Checks by reflection that every field of a job's spec has a flag, a key in job files, and a place in `job show`. A
// new field of the proto that lacks one of them fails here by its name.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/spec_file.h"
#include "client/sweep.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job_specs.h"
#include "message_leaves.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using testing::IsEmpty;

// Returns the spec that the flags describe, or null if one of them is refused.
std::optional<v1::JobSpec> SpecOfFlags(Session& session, const std::string& line) {
  CLI::App app;
  JobFlags flags;
  AddJobFlags(app, flags);
  try {
    app.parse(line);
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  v1::CreateJobRequest request;
  ExitCode exit{};
  if (!ReadJob(flags, session, request, exit, DatasetNeed::kLater)) return std::nullopt;
  return request.spec();
}

// Returns a value of each kind that flags accept, and the short names of all enums.
std::vector<std::string> FlagValues() {
  std::vector<std::string> values = {"3", "0.375", "first", "2h", "2033-05-18T03:33:20Z"};
  std::set<std::string> names;
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
    if (const auto* type = leaf.field()->enum_type()) {
      for (const std::string& name : EnumShortNames(*type)) names.insert(name);
    }
  }
  values.insert(values.end(), names.begin(), names.end());
  return values;
}

// Returns the names of the fields in which two specs differ.
std::set<std::string> Differences(const v1::JobSpec& a, const v1::JobSpec& b) {
  std::set<std::string> fields;
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
    if (leaf.Text(a) != leaf.Text(b)) fields.insert(leaf.name);
  }
  return fields;
}

TEST(SpecFields, EachHasAFlag) {
  Session session{GlobalOptions()};
  std::set<std::string> set_by_flags;
  const std::vector<std::string> values = FlagValues();
  // Links and walks have a flag of the same name, so the loop tries both.
  for (const std::string before : {"", "--model=node2vec", "--link-prediction"}) {
    const std::optional<v1::JobSpec> base = SpecOfFlags(session, before);
    ASSERT_TRUE(base) << before;
    CLI::App app;
    JobFlags flags;
    AddJobFlags(app, flags);
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& value : values) {
        const auto spec = SpecOfFlags(session, absl::StrCat(before, " ", option->get_name(), "=", value));
        if (!spec) continue;
        set_by_flags.merge(Differences(*base, *spec));
        break;
      }
    }
  }
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
    EXPECT_TRUE(set_by_flags.contains(leaf.name)) << leaf.name << ": no flag sets it";
  }
}

// The client sends a given zero as a zero, and does not treat it as unset. The server refuses it where it is invalid.
TEST(SpecFields, AZeroIsSentAsItIsGiven) {
  Session session{GlobalOptions()};
  int numbers = 0;
  for (const SpecRow& row : JobRows()) {
    const Leaf leaf{row.path, PathName(row.path)};
    const auto type = leaf.field()->cpp_type();
    using Field = google::protobuf::FieldDescriptor;
    if (!leaf.field()->has_presence() || type == Field::CPPTYPE_BOOL || type == Field::CPPTYPE_MESSAGE) continue;
    ++numbers;
    const bool walks = leaf.name == kWalkNegatives;
    const std::string flag = walks ? "--model=node2vec --negatives" : FlagNames(row).front();
    const std::string zero = absl::StrCat(leaf.field()->name(), ": 0");
    const auto of_flag = SpecOfFlags(session, absl::StrCat(flag, "=0"));
    ASSERT_TRUE(of_flag) << flag;
    EXPECT_EQ(leaf.Text(*of_flag), zero) << flag;
    std::string json;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(*of_flag, &json).ok());
    for (const SpecSyntax syntax : {SpecSyntax::kJson, SpecSyntax::kYaml}) {
      const auto read = ParseSpec("job", syntax, json);
      ASSERT_TRUE(read.ok()) << json << ": " << read.status();
      EXPECT_EQ(leaf.Text(read->spec()), zero) << json;
    }
    const auto axis = ParseAxis(absl::StrCat(leaf.name, "=0"));
    ASSERT_TRUE(axis.ok()) << axis.status();
    const auto plan = PlanSweep(v1::JobSpec(), {*axis}, /*side_by_side=*/false, 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(leaf.Text(plan->front().spec), zero) << leaf.name;
  }
  EXPECT_GT(numbers, 20);
}

TEST(SpecFields, EachIsReadFromAJobFile) {
  for (const std::string& text : kJobSpecs) {
    v1::JobSpec base;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &base)) << text;
    for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
      for (const v1::JobSpec& spec : ChangesOf(base, leaf)) {
        std::string json;
        ASSERT_TRUE(google::protobuf::util::MessageToJsonString(spec, &json).ok());
        for (const SpecSyntax syntax : {SpecSyntax::kJson, SpecSyntax::kYaml}) {
          const auto read = ParseSpec("job", syntax, json);
          ASSERT_TRUE(read.ok()) << json << ": " << read.status();
          EXPECT_THAT(Differences(read->spec(), spec), IsEmpty()) << json;
        }
      }
    }
  }
}

TEST(SpecFields, EachIsToldByJobShow) {
  const ViewTime time{absl::FromUnixSeconds(1'700'000'000), absl::UTCTimeZone()};
  std::set<std::string> told;
  for (const std::string& text : kJobSpecs) {
    v1::Job job;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, job.mutable_spec())) << text;
    const std::string before = RenderJob(job, time, {});
    for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
      for (const v1::JobSpec& spec : ChangesOf(job.spec(), leaf)) {
        v1::Job changed = job;
        *changed.mutable_spec() = spec;
        if (RenderJob(changed, time, {}) != before) told.insert(leaf.name);
      }
    }
  }
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) {
    EXPECT_TRUE(told.contains(leaf.name)) << leaf.name << ": job show does not tell it";
  }
}

}  // namespace
}  // namespace permafrost::client
