#include "client/defaults.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace permafrost::client {
namespace {

TEST(JobDefault, SaysOnceWhatAllModelsShareAndApartWhatTheyDoNot) {
  const auto epochs = [](const train::TrainOptions& o) { return absl::StrCat(o.epochs); };
  EXPECT_EQ(JobDefault(epochs), absl::StrCat("default ", train::TrainOptions().epochs));

  const auto name = [](const train::TrainOptions& o) { return NameOf(nn::kArchitectureNames, o.model.architecture); };
  EXPECT_EQ(JobDefault(name).substr(0, 31), "default gine; of sage sage; of ");

  const auto level = [](const train::TrainOptions& o) {
    return std::string(nn::IsNodeLevel(o.model.architecture) ? "nodes" : "graphs");
  };
  EXPECT_EQ(JobDefault(level).substr(0, 24), "default graphs; of sage ");
}

}  // namespace
}  // namespace permafrost::client
