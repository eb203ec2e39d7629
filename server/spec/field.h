// Fields of options, one row each: the wire, the database, flags, checks and documents take all that they know of a
// field from its row. Rows stand behind the struct that they describe:
//
//   template <class F>
//   void VisitFields(Options<CheckpointOptions>, F&& f) {
//     f({.name = "keep", .accepts = Between(1, 100), .flag = "--checkpoint-keep", .help = "Checkpoints kept, 1..100
//     ({})"},
//       &CheckpointOptions::keep);
//   }
//
// For an enum the row passes the names after the member. A member that is a struct with rows of its own is a message
// inside the message. A visitor sees neither torch nor protobuf unless it brings them.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace permafrost::spec {

// Chooses the overload of VisitFields.
template <class T>
struct Options {};

// The numbers that a field takes. Functions check what these kinds cannot say (rules.cc).
struct Accepts {
  enum class Kind {
    kAny,
    kBetween,      // low..high
    kBetweenOr0,   // low..high, and 0, which means `zero`
    kNotNegative,  // finite, from 0 on
    kPositive,     // finite, above 0
    kPart,         // from 0 on, below 1
    kEntries       // of a list: at most `high` entries
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

// A job for which a field means something. Where it means nothing, a value other than the default is refused
// (checks.cc).
enum class Need : uint8_t {
  kNothing,  // it means something for every job
  kSet,
  kLargeGraph,
  kOwnModel,  // not a program
  kLayers,
  kFeatures,
  kLabels,
  kLinks,
  kProducts,
  kNeighbors,   // not node2vec
  kSampling,    // the same, with fan-outs
  kDrawnLinks,  // links that the dataset does not divide
  kSgd,
  kWholeUpdates,  // not sparse_adam
  kWeightDecay,
  kStepSchedule,
  kFallingSchedule,  // step or plateau
  kPlateauSchedule,
  kReplicas  // more than one daemon
};

// A member whose rows stand among those of the struct that holds it.
enum class Inline : uint8_t { kNo, kOnWire, kAlways };

// A counter on /metrics that rises with a field. Fields of one name differ by the value of a label.
struct Counter {
  const char *name = nullptr, *help = nullptr;
  const char *label = nullptr, *value = nullptr;
};

struct Field {
  const char* name = "";         // in the contract
  const char* stored = nullptr;  // in the database, where it is not `name`
  Accepts accepts = {};
  std::array<Need, 3> needs = {};
  uint32_t formats = 0;  // of imports that use it (import_options.h); 0: all
  Inline inlined = Inline::kNo;
  bool not_stored = false;         // the database has no such field
  bool only_stored = false;        // the contract has no such field
  bool inverted = false;           // the contract says the opposite
  bool told_where_needed = false;  // answers leave it out where it means nothing
  const char* flag = nullptr;      // of `job submit`
  const char* help = nullptr;      // "{}" stands for the default
  const char* value = nullptr;     // what the help calls a value, where it is not N, X, P or the enum's names
  Counter counter = {};

  constexpr const char* key() const { return stored == nullptr ? name : stored; }
};

namespace internal {
struct AnyRow {
  template <class... Row>
  void operator()(const Field&, Row&&...) const {}
};
}  // namespace internal

// True for a struct with rows.
template <class T>
concept HasFields = requires {
  VisitFields(Options<T>(), internal::AnyRow());
};

// Reads or writes options as the fields of a JSON object (base/json_fields.h), by their rows.
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
