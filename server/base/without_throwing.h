// Turns exceptions of the standard library, want of memory above all, into a Status.
// Threads: safe anywhere.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost {

// Calls `body`, which returns a Status or a StatusOr. What it throws fails `what` ("batch 3"), not the process:
// std::bad_alloc is ResourceExhausted, any other std::exception Internal.
template <class Body>
auto WithoutThrowing(std::string_view what, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(AbslView(what), ": out of memory"));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(AbslView(what), ": ", e.what()));
  }
}

}  // namespace permafrost
