#include "base/device.h"

#include <gtest/gtest.h>

namespace permafrost {
namespace {

TEST(DeviceChoiceTest, WhatIsShownIsReadAgain) {
  for (const char* text : {"auto", "cpu", "mps", "cuda", "cuda:7", "cuda:63"}) {
    const auto choice = ParseDevice(text);
    ASSERT_TRUE(choice) << text;
    EXPECT_EQ(DeviceText(*choice), text);
  }
  EXPECT_EQ(DeviceText(*ParseDevice("cuda:0")), "cuda");
}

TEST(DeviceChoiceTest, OnlyCardsOfCudaAreCounted) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1", "cuda:64", "cuda:99999999999",
                           "cpu:0", "mps:1", "auto:1", "CUDA"}) {
    EXPECT_FALSE(ParseDevice(text)) << text;
  }
}

}  // namespace
}  // namespace permafrost
