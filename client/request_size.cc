#include "client/request_size.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace permafrost::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// About as many as the field takes of its message.
size_t BytesOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return reflection.GetMessage(message, &field).ByteSizeLong();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return reflection.GetString(message, &field).size();
    return sizeof(uint64_t);
  }
  const int entries = reflection.FieldSize(message, &field);
  size_t bytes = 0;
  for (int i = 0; i < entries; ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      bytes += reflection.GetRepeatedMessage(message, &field, i).ByteSizeLong();
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      bytes += reflection.GetRepeatedString(message, &field, i).size();
    } else {
      bytes += sizeof(uint64_t);
    }
  }
  return bytes;
}

}  // namespace

grpc::Status CheckRequestSize(const Message& request) {
  size_t bytes = request.ByteSizeLong();
  if (bytes <= kMaxRequestBytes) return grpc::Status::OK;
  std::string path;
  for (const Message* part = &request; part != nullptr;) {
    std::vector<const FieldDescriptor*> fields;
    part->GetReflection()->ListFields(*part, &fields);
    const FieldDescriptor* largest = nullptr;
    for (const FieldDescriptor* field : fields) {
      if (largest == nullptr || BytesOf(*part, *field) > BytesOf(*part, *largest)) largest = field;
    }
    if (largest == nullptr) break;
    bytes = BytesOf(*part, *largest);
    absl::StrAppend(&path, path.empty() ? "" : ".", std::string(largest->name()));
    const bool is_part = largest->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !largest->is_repeated();
    part = is_part ? &part->GetReflection()->GetMessage(*part, largest) : nullptr;
  }
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat(path, ": ", bytes, " bytes, and a request has room for ", kMaxRequestBytes, " in all")};
}

}  // namespace permafrost::client
