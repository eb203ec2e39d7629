// Tests permafrostd --self-test-device as the owner of a machine runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon.h"
#include "process.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;

TEST(SelfTest, TheCpuPassesAndATableIsPrinted) {
  const Output run = RunCommand({PERMAFROSTD, "--self-test-device", "cpu", "--self-test-steps", "400",
                                 "--self-test-data", ShippedSample().string()},
                                absl::Seconds(280));
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  for (const char* part : {"policy", "ms/iter", "freeze ", "always ", "clear every 20", "never ", "clear-per-step",
                           "entries: executables", "self-test of cpu: passed"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  EXPECT_THAT(run.err, HasSubstr("self-test: freeze: 400 steps on cpu"));
}

TEST(SelfTest, WhatCannotBeTestedIsOneLineAndAFailure) {
#ifndef __APPLE__
  const Output absent =
      RunCommand({PERMAFROSTD, "--self-test-device", "mps", "--self-test-data", ShippedSample().string()});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("permafrostd: self-test: device: mps is not present here"));
#endif
  const Output nowhere = RunCommand({PERMAFROSTD, "--self-test-device", "cpu", "--self-test-data", "/no/such/folder"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("--self-test-data \"/no/such/folder\" is not there"));
}

}  // namespace
}  // namespace permafrost::e2e
