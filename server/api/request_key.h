// What tells one call from another of the same `request_id`.
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "jobs/job_store.h"

namespace permafrost::api {

// Of a request message without maps: its type and all its fields but `request_id`. An empty id: none.
template <class Request>
jobs::RequestKey KeyOf(const Request& request) {
  if (request.request_id().empty()) return {};
  Request asked = request;
  asked.clear_request_id();
  return {.id = request.request_id(),
          .what = absl::StrCat(Request::descriptor()->full_name(), " ", HashHex(Hash64(asked.SerializeAsString())))};
}

}  // namespace permafrost::api
