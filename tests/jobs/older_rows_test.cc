// Compares the jobs that this version reads from rows of older servers with a golden file, because they must not
// change.
#include "older_rows.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "golden.h"
#include "jobs/job_row.h"

namespace permafrost::jobs {
namespace {

TEST(OlderRows, AreReadAsTheyWere) {
  std::string text =
      "Rows of older servers, the oldest first, each followed by the row that this version writes for the same job.\n"
      "Only line breaks are added.\n";
  for (const OlderRow& row : kOlderRows) {
    const auto column = SpecFromJson(row.text);
    ASSERT_TRUE(column.ok()) << row.what << ": " << column.status();
    const std::string now = ToJson(*column);
    absl::StrAppend(&text, "\n", row.what, "\n", OneFieldALine(row.text), "\nis now\n", OneFieldALine(now), "\n");
    const auto again = SpecFromJson(now);
    ASSERT_TRUE(again.ok()) << row.what << ": " << again.status();
    EXPECT_EQ(again->spec, column->spec) << row.what;
  }
  ExpectGolden("jobs/goldens/job_rows.txt", text);
}

}  // namespace
}  // namespace permafrost::jobs
