#include "permafrost/v1/services.h"

#include "absl/strings/str_cat.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/plan.pb.h"
#include "permafrost/v1/program.pb.h"
#include "permafrost/v1/server.pb.h"
#include "permafrost/v1/worker.pb.h"

namespace permafrost {

using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

std::vector<const ServiceDescriptor*> ContractServices() {
  std::vector<const ServiceDescriptor*> services;
  for (const auto* file :
       {v1::Job::descriptor()->file(), v1::GraphCache::descriptor()->file(),
        v1::PlanGraphCacheResponse::descriptor()->file(), v1::CensusGraphCacheResponse::descriptor()->file(),
        v1::Dataset::descriptor()->file(), v1::Program::descriptor()->file(), v1::RunRankRequest::descriptor()->file(),
        v1::ServerInfo::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) services.push_back(file->service(i));
  }
  return services;
}

std::vector<const MethodDescriptor*> ContractMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const ServiceDescriptor* service : ContractServices()) {
    for (int i = 0; i < service->method_count(); ++i) methods.push_back(service->method(i));
  }
  return methods;
}

std::string PathOf(const MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

}  // namespace permafrost
