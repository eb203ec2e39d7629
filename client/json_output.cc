#include "client/json_output.h"

#include "google/protobuf/util/json_util.h"

namespace permafrost::client {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string out;
  // Fails only for malformed Any, Timestamp or Duration values; what was written until then is of no use.
  if (!google::protobuf::util::MessageToJsonString(message, &out, options).ok()) return "{}";
  return out;
}

}  // namespace permafrost::client
