#include "api/guard/audit.h"

#include <grpcpp/server_context.h>

#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "access/gate.h"
#include "access/token_store.h"
#include "api/guard/credentials.h"
#include "api/guard/methods.h"
#include "api/wire/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr size_t kMostResourceBytes = 128;

// Audits one call. gRPC runs the hooks of a call's operations on different threads, but one at a time. It destroys
// the interceptor after the last hook.
class Auditor final : public Interceptor {
 public:
  Auditor(ServerRpcInfo* info, const access::Gate& gate, access::AuditLog& audit)
      : info_(info), gate_(gate), audit_(audit) {
    entry_.method = std::string_view(info->method()).substr(1);
  }

  // If no status was sent, the client has gone.
  ~Auditor() override {
    if (!written_) Write(grpc::StatusCode::CANCELLED);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      TakeCaller(*methods);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      TakeResource(methods->GetRecvMessage());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE) && entry_.resource.empty()) {
      TakeResource(methods->GetSendMessage());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Write(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void TakeCaller(InterceptorBatchMethods& methods) {
    const grpc::ServerContextBase& context = *info_->server_context();
    entry_.peer = context.peer();
    const auto* metadata = methods.GetRecvInitialMetadata();
    // The gate has just admitted the caller, so the caller is known unless its token was revoked since then.
    const absl::StatusOr<access::Caller> caller =
        CallerOf(gate_, context, metadata == nullptr ? CallMetadata() : *metadata);
    entry_.caller = caller.ok() ? caller->name : "unknown";
    if (caller.ok()) entry_.role = access::kRoleNames.Name(caller->role);
  }

  // `message` is a protobuf message, or null.
  void TakeResource(const void* message) {
    if (message == nullptr || !entry_.resource.empty()) return;
    entry_.resource = ResourceOf(*static_cast<const Message*>(message));
  }

  void Write(grpc::StatusCode code) {
    written_ = true;
    entry_.code = StatusCodeName(code);
    audit_.Write(entry_);
  }

  ServerRpcInfo* const info_;
  const access::Gate& gate_;
  access::AuditLog& audit_;
  access::AuditEntry entry_;
  bool written_ = false;
};

class AuditFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  AuditFactory(const access::Gate& gate, access::AuditLog& audit) : gate_(gate), audit_(audit) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return FindMethod(info->method()).changes ? new Auditor(info, gate_, audit_) : nullptr;
  }

 private:
  const access::Gate& gate_;
  access::AuditLog& audit_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeAudit(const access::Gate& gate,
                                                                                 access::AuditLog& audit) {
  return std::make_unique<AuditFactory>(gate, audit);
}

std::string ResourceOf(const Message& message) {
  const auto* reflection = message.GetReflection();
  const auto* type = message.GetDescriptor();
  const auto text = [&](const FieldDescriptor* field) {
    const bool is_text =
        field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field->is_repeated();
    const std::string value = is_text ? reflection->GetString(message, field) : std::string();
    // A value that contains a secret is omitted, because somebody may pass a secret as a name by mistake.
    return absl::StrContains(value, AbslView(access::kSecretPrefix)) ? std::string()
                                                                     : value.substr(0, kMostResourceBytes);
  };
  if (std::string name = text(type->FindFieldByName("name")); !name.empty()) return name;
  for (const char* kind : {"job", "dataset"}) {
    if (const std::string id = text(type->FindFieldByName(absl::StrCat(kind, "_id"))); !id.empty()) {
      return absl::StrCat(kind, "s/", id);
    }
  }
  // A request of UpdateJob holds a job, and a request of UploadDataset holds a start.
  for (const char* held : {"job", "start"}) {
    const FieldDescriptor* field = type->FindFieldByName(held);
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) continue;
    if (reflection->HasField(message, field)) return ResourceOf(reflection->GetMessage(message, field));
  }
  return "";
}

}  // namespace permafrost::api
