// Each method of the contract has its row in the table of roles, and the table has no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "access/gate.h"
#include "api/guard/request_metrics.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/plan.pb.h"
#include "permafrost/v1/program.pb.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {
namespace {

// Returns the methods of every file of proto/permafrost/v1 that is linked in.
std::set<std::string> MethodsOfTheContract() {
  // Touched, so that they are in the pool.
  v1::Job::descriptor();
  v1::GraphCache::descriptor();
  v1::PlanGraphCacheResponse::descriptor();
  v1::CensusGraphCacheResponse::descriptor();
  v1::Dataset::descriptor();
  v1::Program::descriptor();
  v1::ServerInfo::descriptor();
  std::set<std::string> methods;
  const auto folder = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "proto/permafrost/v1";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".proto") continue;
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
        "permafrost/v1/" + entry.path().filename().string());
    EXPECT_NE(file, nullptr) << entry.path();
    for (int s = 0; file != nullptr && s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.insert("/" + file->service(s)->full_name() + "/" + file->service(s)->method(m)->name());
      }
    }
  }
  return methods;
}

TEST(MethodRules, AreThoseOfTheContract) {
  std::set<std::string> rules;
  for (const access::MethodRule& rule : access::MethodRules()) {
    if (absl::StartsWith(std::string(rule.path), "/permafrost.")) rules.insert(std::string(rule.path));
  }
  const std::set<std::string> methods = MethodsOfTheContract();
  EXPECT_GT(methods.size(), 30U);
  EXPECT_EQ(rules, methods);
}

// Methods that read are named so; any other method must be seen to change something.
TEST(MethodRules, WhatOnlyReadsIsNamedSo) {
  for (const access::MethodRule& rule : access::MethodRules()) {
    const std::string name(rule.path.substr(rule.path.rfind('/') + 1));
    bool reads = false;
    for (const char* verb : {"Get", "List", "Watch", "Stream", "Export", "Evaluate", "Plan", "Census", "Explain",
                             "Sample", "Verify", "Check", "ServerReflection"}) {
      reads = reads || absl::StartsWith(name, verb);
    }
    EXPECT_EQ(rule.changes, !reads) << rule.path;
  }
}

}  // namespace
}  // namespace permafrost::api
