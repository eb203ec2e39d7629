// The border with libtorch: converts a program's types to libtorch's, and turns libtorch's exceptions into a Status
// with a message of one line. No other file of server/program turns these exceptions into a Status.
// Threads: pure functions.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "program/program.h"

namespace permafrost::program {

inline at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBool:
      return at::kBool;
    case DType::kBfloat16:
      return at::kBFloat16;
  }
  return at::kFloat;
}

// Returns the first 600 bytes of libtorch's message on one line, without its C++ backtrace. The message may cite text
// of the program's file.
inline std::string MessageOf(const c10::Error& error) {
  std::string message = error.what_without_backtrace();
  for (char& c : message)
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  return CutMessage(message, 600);
}

// Calls `body`, which returns an absl::Status. Returns the status of `body`, with "what: " before the message of an
// error. An exception for lack of memory becomes ResourceExhausted, any other exception InvalidArgument.
template <class Body>
absl::Status CatchTorch(std::string_view what, const Body& body) {
  try {
    const absl::Status status = body();
    return status.ok() ? status : Annotate(status, what);
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(absl::StrCat(AbslView(what), ": ", MessageOf(error)));
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(what), ": ", MessageOf(error)));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(AbslView(what), ": out of memory"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(what), ": ", Shorten(error.what())));
  }
}

}  // namespace permafrost::program
