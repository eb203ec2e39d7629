#include "api/guard/methods.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "api/wire/wire_values.h"
#include "google/protobuf/descriptor.h"
#include "permafrost/v1/access.pb.h"
#include "permafrost/v1/services.h"

namespace permafrost::api {
namespace {

using MethodsByPath = std::map<std::string, Method, std::less<>>;

const MethodsByPath& AllMethods() {
  static const auto& methods = *new MethodsByPath([] {
    MethodsByPath by_path;
    for (const auto* method : ContractMethods()) by_path.emplace(PathOf(*method), MethodFromContract(*method));
    // Load balancers and probes have no token.
    by_path["/grpc.health.v1.Health/Check"] = {.label = "Health/Check", .least_role = std::nullopt};
    by_path["/grpc.health.v1.Health/Watch"] = {.label = "Health/Watch", .streams = true, .least_role = std::nullopt};
    return by_path;
  }());
  return methods;
}

}  // namespace

Method MethodFromContract(const google::protobuf::MethodDescriptor& method) {
  using WireRole = WireEnum<v1::Token::Role, access::kRoleNames>;
  const v1::MethodAccess& rule = method.options().GetExtension(v1::access);
  return {.label = absl::StrCat(method.service()->name(), "/", method.name()),
          .streams = method.client_streaming() || method.server_streaming(),
          .least_role = WireRole::FromWire(rule.least_role()).value_or(access::Role::kAdmin),
          .changes = rule.changes()};
}

const Method& FindMethod(std::string_view path) {
  static const auto& unknown = *new Method{.label = "unknown", .least_role = access::Role::kViewer};
  const auto found = AllMethods().find(path);
  return found == AllMethods().end() ? unknown : found->second;
}

std::vector<std::string> RequestMethods() {
  std::vector<std::string> labels;
  for (const auto& [path, method] : AllMethods()) labels.push_back(method.label);
  return labels;
}

std::vector<std::string> StreamMethods() {
  std::vector<std::string> labels;
  for (const auto& [path, method] : AllMethods()) {
    if (method.streams) labels.push_back(method.label);
  }
  return labels;
}

std::vector<std::string> WatchMethods() {
  std::vector<std::string> labels = StreamMethods();
  std::erase_if(labels, [](const std::string& label) {
    return label.starts_with("Health/") || label.find("/Watch") == std::string::npos;
  });
  return labels;
}

}  // namespace permafrost::api
