#include "client/spec_rows.h"

#include <gtest/gtest.h>

namespace permafrost::client {
namespace {

TEST(DefaultText, SaysOnceWhatJobsShareAndApartWhatTheyDoNot) {
  EXPECT_EQ(DefaultText("20", "20", "20"), "default 20");
  EXPECT_EQ(DefaultText("gine", "sage", "sage"), "default gine; on one large graph sage");
  EXPECT_EQ(DefaultText("0.001", "0.001", "0.01"), "default 0.001; of node2vec 0.01");
  EXPECT_EQ(DefaultText("32", "1024", "32"), "default 32; on one large graph 1024; of node2vec 32");
}

}  // namespace
}  // namespace permafrost::client
