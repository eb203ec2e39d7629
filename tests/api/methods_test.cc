// Tests that each method of the contract declares its least role, and that the server reads every declaration.
#include "api/guard/methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "permafrost/v1/access.pb.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/services.h"

namespace permafrost::api {
namespace {

using google::protobuf::MethodDescriptor;
using testing::Contains;
using testing::Not;

TEST(Contract, ItsServicesAreThoseOfEveryFile) {
  std::set<std::string> in_files, listed;
  for (const auto* service : ContractServices()) {
    EXPECT_TRUE(listed.insert(service->full_name()).second) << service->full_name() << " is listed twice";
  }
  const auto folder = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "proto/permafrost/v1";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".proto") continue;
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
        "permafrost/v1/" + entry.path().filename().string());
    ASSERT_NE(file, nullptr) << entry.path();
    for (int i = 0; i < file->service_count(); ++i) in_files.insert(file->service(i)->full_name());
  }
  EXPECT_EQ(listed, in_files);
  EXPECT_GT(ContractMethods().size(), 30U);
}

TEST(Methods, EachTellsWhoMayCallIt) {
  for (const MethodDescriptor* method : ContractMethods()) {
    const std::string path = PathOf(*method);
    const v1::MethodAccess& rule = method->options().GetExtension(v1::access);
    EXPECT_NE(rule.least_role(), v1::Token::ROLE_UNSPECIFIED) << path << ": it needs option (access) with a least_role";
    const Method& found = FindMethod(path);
    ASSERT_TRUE(found.least_role) << path << ": only health is open to all";
    EXPECT_EQ(access::kRoleNames.Name(*found.least_role),
              EnumShortName(*v1::Token::Role_descriptor(), rule.least_role()))
        << path;
    EXPECT_EQ(found.changes, rule.changes()) << path;
  }
}

TEST(Methods, AViewerChangesNothingAndOnlyAnAdminSeesTokens) {
  for (const MethodDescriptor* method : ContractMethods()) {
    const Method& found = FindMethod(PathOf(*method));
    EXPECT_TRUE(!found.changes || found.least_role >= access::Role::kOperator) << found.label;
    EXPECT_TRUE(!absl::StrContains(method->name(), "Token") || found.least_role == access::Role::kAdmin) << found.label;
  }
}

// The name of a method that only reads begins with one of these verbs. The contract must mark any other method as one
// that changes something.
TEST(Methods, WhatOnlyReadsIsNamedSo) {
  for (const MethodDescriptor* method : ContractMethods()) {
    bool reads = false;
    for (const char* verb :
         {"Get", "List", "Watch", "Stream", "Export", "Evaluate", "Plan", "Census", "Explain", "Sample", "Verify"}) {
      reads = reads || absl::StartsWith(method->name(), verb);
    }
    EXPECT_EQ(FindMethod(PathOf(*method)).changes, !reads) << method->full_name();
  }
}

// A service as protoc would generate it from a file without the access options.
TEST(Methods, OneThatTellsNoRoleNeedsAnAdmin) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("forgotten.proto");
  file.add_message_type()->set_name("Empty");
  auto* service = file.add_service();
  service->set_name("NewService");
  auto* method = service->add_method();
  method->set_name("GetSecret");
  method->set_input_type("Empty");
  method->set_output_type("Empty");
  google::protobuf::DescriptorPool pool;
  const auto* built = pool.BuildFile(file);
  ASSERT_NE(built, nullptr);
  const Method read = MethodFromContract(*built->service(0)->method(0));
  EXPECT_EQ(read.label, "NewService/GetSecret");
  EXPECT_EQ(read.least_role, access::Role::kAdmin);
}

TEST(Methods, ThoseOfGrpcAreOpenToProbesAndElseToViewers) {
  EXPECT_EQ(FindMethod("/grpc.health.v1.Health/Check").least_role, std::nullopt);
  EXPECT_EQ(FindMethod("/grpc.health.v1.Health/Watch").least_role, std::nullopt);
  for (const char* path : {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/permafrost.v1.New/Method",
                           "/permafrost.v1.JobService/Nope", "/", ""}) {
    EXPECT_EQ(FindMethod(path).least_role, access::Role::kViewer) << path;
    EXPECT_EQ(FindMethod(path).label, "unknown") << path;
    EXPECT_FALSE(FindMethod(path).changes) << path;
  }
}

TEST(RequestMethods, AreEveryMethodOfTheContractAndHealth) {
  std::vector<std::string> all = {"Health/Check", "Health/Watch"}, streams = {"Health/Watch"};
  for (const MethodDescriptor* method : ContractMethods()) {
    all.push_back(absl::StrCat(method->service()->name(), "/", method->name()));
    if (method->client_streaming() || method->server_streaming()) streams.push_back(all.back());
  }
  EXPECT_THAT(RequestMethods(), testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(StreamMethods(), testing::UnorderedElementsAreArray(streams));
  EXPECT_THAT(StreamMethods(), Contains("DatasetService/UploadDataset"));
  EXPECT_THAT(StreamMethods(), Not(Contains("JobService/CreateJob")));
}

TEST(RequestMethods, WatchesAreThoseOfResources) {
  EXPECT_THAT(WatchMethods(), testing::IsSupersetOf(
                                  {"JobService/WatchJob", "DatasetService/WatchDataset", "ServerService/WatchServer"}));
  EXPECT_THAT(WatchMethods(), Not(Contains("Health/Watch")));
  EXPECT_THAT(StreamMethods(), testing::IsSupersetOf(WatchMethods()));
}

}  // namespace
}  // namespace permafrost::api
