// Options as the fields of a JSON object (base/json_fields.h), by their rows. Threads: pure functions.
#pragma once

#include <type_traits>

#include "spec/field.h"

namespace permafrost::spec {

// `a`: a JsonWriter or a JsonReader. `options`: with rows; const for a writer. A bool is stored as one, whatever names
// it has elsewhere.
template <class A, class T>
void StoredFields(A& a, T& options) {
  VisitFields(Options<std::remove_const_t<T>>(), [&](const Field& field, auto member, const auto&... names) {
    if (field.not_stored) return;
    auto& value = options.*member;
    using M = std::remove_cvref_t<decltype(value)>;
    if constexpr (HasFields<M>) {
      if (field.inlined == Inline::kAlways) return StoredFields(a, value);
    }
    if constexpr (std::is_same_v<M, bool>) {
      a(field.key(), value);
    } else {
      a(field.key(), value, names...);
    }
  });
}

}  // namespace permafrost::spec
