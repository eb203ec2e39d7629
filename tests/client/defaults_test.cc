#include "client/defaults.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace permafrost::client {
namespace {

TEST(JobDefault, SaysOnceWhatBothLevelsShareAndApartWhatTheyDoNot) {
  const auto epochs = [](const spec::TrainOptions& o) { return absl::StrCat(o.epochs); };
  EXPECT_EQ(JobDefault(epochs), absl::StrCat("default ", spec::TrainOptions().epochs));

  const auto name = [](const spec::TrainOptions& o) { return NameOf(spec::kArchitectureNames, o.model.architecture); };
  EXPECT_EQ(JobDefault(name), "default gine; on one large graph sage");
}

}  // namespace
}  // namespace permafrost::client
