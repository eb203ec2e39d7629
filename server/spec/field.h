// Describes the fields of option structs, one row for each field. The wire, the database, flags, checks and documents
// take everything they know about a field from its row. The rows follow the struct that they describe:
//
//   template <class F>
//   void VisitFields(Options<CheckpointOptions>, F&& f) {
//     f({.name = "keep", .accepts = Between(1, 100), .flag = "--checkpoint-keep", .help = "Checkpoints kept ({})"},
//       &CheckpointOptions::keep);
//   }
//
// For an enum field the row passes the enum's names after the member. A member that is a struct with rows is a nested
// message on the wire. This header includes neither torch nor protobuf; a visitor that needs one of them includes it.
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace permafrost::spec {

// A tag by which a call chooses the overload of VisitFields for T.
template <class T>
struct Options {};

// The numbers that a field accepts. Rules that these kinds cannot express are checked in rules.cc.
struct Accepts {
  enum class Kind {
    kAny,
    kBetween,      // low..high, inclusive
    kBetweenOr0,   // low..high, inclusive, or 0, which means `zero`
    kNotNegative,  // finite and >= 0
    kPositive,     // finite and > 0
    kPart,         // >= 0 and < 1
    kEntries       // for a list: at most `high` entries
  };
  Kind kind = Kind::kAny;
  int64_t low = 0, high = 0;
  const char* zero = nullptr;
};
constexpr Accepts Between(int64_t low, int64_t high) { return {Accepts::Kind::kBetween, low, high}; }
constexpr Accepts UpToOr0(int64_t high, const char* zero) { return {Accepts::Kind::kBetweenOr0, 1, high, zero}; }
constexpr Accepts Entries(int64_t high) { return {Accepts::Kind::kEntries, 0, high}; }
inline constexpr Accepts kNotNegative{Accepts::Kind::kNotNegative}, kPositive{Accepts::Kind::kPositive},
    kPart{Accepts::Kind::kPart};

// The jobs for which a field has a meaning. If the field has no meaning for a job, any value but the default is
// refused (checks.cc).
enum class Need : uint8_t {
  kNothing,  // every job
  kSet,
  kLargeGraph,
  kOwnModel,  // a job whose model is not a program
  kLayers,
  kFeatures,
  kLabels,
  kLinks,
  kProducts,
  kNeighbors,   // not node2vec
  kSampling,    // not node2vec, and fan_outs is given
  kDrawnLinks,  // every job except one that takes its link split from the dataset
  kSgd,
  kWholeUpdates,  // not sparse_adam
  kWeightDecay,
  kStepSchedule,
  kFallingSchedule,  // schedule step or plateau
  kPlateauSchedule,
  kReplicas  // more than one replica
};

// Says whether the rows of a struct member are visited as if they were rows of the enclosing struct.
enum class Inline : uint8_t { kNo, kOnWire, kAlways };

// A counter on /metrics, to which each increase of a field's value is added. Fields that share a counter have the
// same `name` and `label`, and differ in the label's `value`.
struct Counter {
  const char *name = nullptr, *help = nullptr;
  const char *label = nullptr, *value = nullptr;
};

struct Field {
  const char* name = "";         // the name in proto/
  const char* stored = nullptr;  // the name in the database, if it differs from `name`
  Accepts accepts = {};
  std::array<Need, 3> needs = {};
  uint32_t formats = 0;  // bits of the import formats that use the field (import_options.h); 0: all
  Inline inlined = Inline::kNo;
  bool not_stored = false;         // the field is absent from the database
  bool only_stored = false;        // the field is absent from proto/
  bool inverted = false;           // the bool in proto/ is the negation of the member
  bool told_where_needed = false;  // answers contain the field only for jobs for which it has a meaning
  const char* flag = nullptr;      // the flag of `job submit`
  const char* help = nullptr;      // "{}" stands for the default
  const char* value = nullptr;     // the placeholder for the value in the help; null: N, X, P or the enum's names
  Counter counter = {};

  constexpr const char* key() const { return stored == nullptr ? name : stored; }
};

namespace internal {
struct AnyRow {
  template <class... Row>
  void operator()(const Field&, Row&&...) const {}
};
}  // namespace internal

// True for a struct that has rows.
template <class T>
concept HasFields = requires {
  VisitFields(Options<T>(), internal::AnyRow());
};

// Reads or writes options as the fields of a JSON object (base/json_fields.h), according to their rows. `a` is a
// JsonWriter or a JsonReader. `options` has rows, and is const for a writer. A bool is always stored as a JSON bool,
// even if its row has names for it.
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
