// Distinguishes different calls with the same `request_id`.
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "jobs/job_store.h"

namespace permafrost::api {

// Hashes all fields of the request except `request_id`.
template <class Request>
std::string HashOfAsked(const Request& request) {
  Request asked = request;
  asked.clear_request_id();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // maps too
    asked.SerializeToCodedStream(&coded);
  }
  return HashHex(Hash64(bytes));
}

// Returns a key made of the request's type and all its fields except `request_id`; an empty key if the id is empty.
template <class Request>
jobs::RequestKey KeyOf(const Request& request) {
  if (request.request_id().empty()) return {};
  return {.id = request.request_id(),
          .what = absl::StrCat(Request::descriptor()->full_name(), " ", HashOfAsked(request))};
}

}  // namespace permafrost::api
