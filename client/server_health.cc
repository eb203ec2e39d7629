#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"

namespace permafrost::client {
namespace {

// The method of grpc.health.v1, whose two messages have one field each; not every gRPC comes with their generated code.
constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
constexpr char kServiceField = 0x0a;    // field 1, a string
constexpr uint8_t kStatusField = 0x08;  // field 1, a varint
constexpr uint8_t kIsServing = 1;

std::string HealthRequest(const std::string& service) {
  if (service.empty()) return {};
  // Names of services are shorter than a varint of one byte counts.
  return absl::StrCat(std::string(1, kServiceField), std::string(1, static_cast<char>(service.size())), service);
}

bool IsServing(const grpc::ByteBuffer& response) {
  grpc::Slice bytes;
  return response.DumpToSingleSlice(&bytes).ok() && bytes.size() == 2 && bytes.begin()[0] == kStatusField &&
         bytes.begin()[1] == kIsServing;
}

grpc::Status CheckHealth(grpc::GenericStub& stub, grpc::ClientContext& context, const std::string& service,
                         grpc::ByteBuffer& response) {
  grpc::CompletionQueue queue;
  const grpc::Slice bytes(HealthRequest(service));
  const auto call = stub.PrepareUnaryCall(&context, kHealthMethod, grpc::ByteBuffer(&bytes, 1), &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

ExitCode ShowHealth(Session& session, const std::string& service) {
  grpc::GenericStub stub(session.channel());
  grpc::ByteBuffer response;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return CheckHealth(stub, *context, service, response); });
  if (!status.ok()) return session.Fail(status);
  const bool serving = IsServing(response);
  const std::string text = serving ? "SERVING" : "NOT_SERVING";
  session.Print(session.json() ? absl::StrCat("{\"status\":\"", text, "\"}\n") : absl::StrCat(text, "\n"));
  return serving ? ExitCode::kOk : ExitCode::kEndedBadly;
}

}  // namespace

void AddServerHealthCommand(CLI::App& server, Command& chosen) {
  CLI::App* health = server.add_subcommand(
      "health", "Whether the server serves: not while it drains or its device thread hangs. For probes");
  const auto service = std::make_shared<std::string>();
  health
      ->add_option("--service", *service,
                   "A service's own health, as permafrost.v1.JobService. Default: that of the\nserver as a whole.")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return name.size() < 128 ? std::string() : std::string("accepted: at most 127 bytes");
      });
  health->callback(
      [service, &chosen] { chosen = [service](Session& session) { return ShowHealth(session, *service); }; });
}

}  // namespace permafrost::client
