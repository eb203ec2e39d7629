// Compares a job's messages to clients and its database row with golden files, so that a changed default shows.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "complete_specs.h"
#include "golden.h"
#include "jobs/job_row.h"

namespace permafrost::api {
namespace {

// Returns the spec as the client's JSON, with one line for each field.
std::string JsonOf(const v1::JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.add_whitespace = true;
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(spec, &text, options).ok());
  return text;
}

TEST(ToldJobs, SpecsOfEveryKind) {
  std::string text = "Specs as clients write them, and what the job that the server makes of each tells of itself.\n";
  for (const std::string& spec : kJobSpecs) absl::StrAppend(&text, "\n", spec, "\n", JsonOf(Complete(spec)));
  ExpectGolden("api/goldens/told_jobs.txt", text);
}

TEST(ToldJobs, RowsOfEveryKind) {
  std::string text =
      "Specs as clients write them, and the database's column of the job that the server makes of each. Only line\n"
      "breaks are added.\n";
  for (const std::string& written : kJobSpecs) {
    const auto spec = SpecOf(Bare(written));
    ASSERT_TRUE(spec.ok()) << written << ": " << spec.status();
    const std::string column = jobs::ToJson(jobs::SpecColumn{.spec = *spec, .dataset_uid = "u", .notes = {"a note"}});
    absl::StrAppend(&text, "\n", written, "\n", OneFieldALine(column), "\n");
  }
  ExpectGolden("api/goldens/job_rows.txt", text);
}

}  // namespace
}  // namespace permafrost::api
