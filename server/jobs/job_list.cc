#include "jobs/job_list.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "base/string_view.h"

namespace permafrost::jobs {
namespace {

enum class FilterField { kName, kState, kDataset, kLabel, kPriority, kCreateTime, kStartTime, kEndTime };
// kHas is the operator ":".
enum class FilterOperator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kHas };

// One comparison: a field of a job, an operator and a value.
struct FilterComparison {
  FilterField field = FilterField::kName;
  std::string key;  // the key of a label
  FilterOperator op = FilterOperator::kEqual;
  bool any_value = false;  // "labels:KEY" or "labels.KEY:*"
  // The type of the field determines which of these is set.
  std::string text;
  JobState state = JobState::kQueued;
  int32_t number = 0;
  absl::Time time;

  // Returns false if the job lacks the label or the time.
  bool Matches(const Job& job) const;
};

bool Holds(FilterOperator op, std::weak_ordering order) {
  switch (op) {
    case FilterOperator::kEqual:
    case FilterOperator::kHas:
      return order == 0;
    case FilterOperator::kNotEqual:
      return order != 0;
    case FilterOperator::kLess:
      return order < 0;
    case FilterOperator::kLessEqual:
      return order <= 0;
    case FilterOperator::kGreater:
      return order > 0;
    case FilterOperator::kGreaterEqual:
      return order >= 0;
  }
  return false;
}

std::weak_ordering Order(absl::Time a, absl::Time b) {
  if (a < b) return std::weak_ordering::less;
  return b < a ? std::weak_ordering::greater : std::weak_ordering::equivalent;
}

std::weak_ordering OrderOfText(const std::string& a, const std::string& b) { return a.compare(b) <=> 0; }

// Returns true if the field's values are numbers or times, which < and > compare.
bool HasOrder(FilterField field) {
  return field == FilterField::kPriority || field == FilterField::kCreateTime || field == FilterField::kStartTime ||
         field == FilterField::kEndTime;
}

bool FilterComparison::Matches(const Job& job) const {
  const auto by_time = [this](absl::Time t) { return t != absl::InfinitePast() && Holds(op, Order(t, time)); };
  switch (field) {
    case FilterField::kName:
      return Holds(op, OrderOfText(job.id.value(), text));
    case FilterField::kState:
      return Holds(op, job.state <=> state);
    case FilterField::kDataset:
      return Holds(op, OrderOfText(job.spec.train.dataset.value(), text));
    case FilterField::kLabel: {
      const auto label = job.labels.find(key);
      return label != job.labels.end() && (any_value || Holds(op, OrderOfText(label->second, text)));
    }
    case FilterField::kPriority:
      return Holds(op, job.spec.priority <=> number);
    case FilterField::kCreateTime:
      return by_time(job.create_time);
    case FilterField::kStartTime:
      return by_time(job.start_time);
    case FilterField::kEndTime:
      return by_time(job.end_time);
  }
  return false;
}

constexpr size_t kMaxFilterLength = 4096;
// The deepest nesting of parentheses. This bounds the stack.
constexpr int kMaxFilterDepth = 32;

constexpr EnumNames<FilterField, 8> kFilterFieldNames{{{{FilterField::kName, "name"},
                                                        {FilterField::kState, "state"},
                                                        {FilterField::kDataset, "dataset"},
                                                        {FilterField::kLabel, "labels"},
                                                        {FilterField::kPriority, "priority"},
                                                        {FilterField::kCreateTime, "create_time"},
                                                        {FilterField::kStartTime, "start_time"},
                                                        {FilterField::kEndTime, "end_time"}}}};
constexpr char kAcceptedFields[] = "name, state, dataset, labels.KEY, priority, create_time, start_time, end_time";

// Parses "RUNNING", "running" or "STATE_RUNNING".
std::optional<JobState> ParseFilterState(const std::string& value) {
  const std::string name = absl::AsciiStrToLower(value);
  return kJobStateNames.Parse(absl::StrReplaceAll(absl::StripPrefix(name, "state_"), {{"_", "-"}}));
}

// Returns the checksum of the sequence and the query. Since it covers both, a token of another query is refused like
// an invented one.
std::string Checksum(int64_t sequence, const JobQuery& query) {
  const std::set<JobState> states(query.states.begin(), query.states.end());
  std::string text = absl::StrCat("jobs-page-1 ", sequence);
  for (const JobState state : states) absl::StrAppend(&text, " ", std::string(kJobStateNames.Name(state)));
  if (!query.filter.empty()) absl::StrAppend(&text, "\n", query.filter);
  return HashHex(Hash64(text));
}

}  // namespace

struct JobFilter::Node {
  enum class Kind { kAnd, kOr, kNot, kComparison };
  Kind kind = Kind::kComparison;
  std::vector<Node> parts;  // kNot has one part, kComparison has none
  FilterComparison comparison;

  bool Matches(const Job& job) const {
    const auto matches = [&job](const Node& part) { return part.Matches(job); };
    switch (kind) {
      case Kind::kAnd:
        return std::ranges::all_of(parts, matches);
      case Kind::kOr:
        return std::ranges::any_of(parts, matches);
      case Kind::kNot:
        return !parts.front().Matches(job);
      case Kind::kComparison:
        return comparison.Matches(job);
    }
    return false;
  }
};

namespace {

using FilterNode = JobFilter::Node;

// A recursive descent parser. After each method, the position is behind the text that the method read. After an error
// no more text is read.
class FilterParser {
 public:
  explicit FilterParser(std::string_view text) : text_(text) {}

  // Parses the whole text. Returns nullopt on an error, which error() describes.
  std::optional<FilterNode> ParseAll() {
    std::optional<FilterNode> root = ParseAnd();
    if (root && !AtEnd()) return Fail("AND, OR or the end");
    return root;
  }
  const std::string& error() const { return error_; }

 private:
  std::optional<FilterNode> ParseAnd() { return ParseChain(FilterNode::Kind::kAnd, "AND"); }
  std::optional<FilterNode> ParsePart(FilterNode::Kind of) {
    return of == FilterNode::Kind::kAnd ? ParseChain(FilterNode::Kind::kOr, "OR") : ParseTerm();
  }

  // Parses a sequence of parts that are separated by `word`.
  std::optional<FilterNode> ParseChain(FilterNode::Kind kind, std::string_view word) {
    FilterNode chain{.kind = kind, .parts = {}, .comparison = {}};
    do {
      std::optional<FilterNode> part = ParsePart(kind);
      if (!part) return std::nullopt;
      chain.parts.push_back(*std::move(part));
    } while (TakeWord(word));
    if (chain.parts.size() > 1) return chain;
    FilterNode only = std::move(chain.parts.front());
    return only;
  }

  std::optional<FilterNode> ParseTerm() {
    const bool negated = TakeWord("NOT");
    std::optional<FilterNode> term = ParseSimple();
    if (!term || !negated) return term;
    FilterNode node{.kind = FilterNode::Kind::kNot, .parts = {}, .comparison = {}};
    node.parts.push_back(*std::move(term));
    return node;
  }

  std::optional<FilterNode> ParseSimple() {
    SkipBlanks();
    if (!Take("(")) return ParseComparison();
    if (++depth_ > kMaxFilterDepth)
      return Fail(absl::StrCat("at most ", kMaxFilterDepth, " parentheses in each other"));
    std::optional<FilterNode> inner = ParseAnd();
    if (!inner) return std::nullopt;
    SkipBlanks();
    if (!Take(")")) return Fail("AND, OR or )");
    --depth_;
    return inner;
  }

  std::optional<FilterNode> ParseComparison() {
    FilterNode node;
    if (!ParseField(node.comparison) || !ParseOperator(node.comparison)) return std::nullopt;
    SkipBlanks();
    const size_t begin = at_;
    bool quoted = false;
    const std::optional<std::string> value = ParseValue(quoted);
    if (!value || !SetValue(*value, quoted, begin, node.comparison)) return std::nullopt;
    return node;
  }

  bool ParseField(FilterComparison& comparison) {
    SkipBlanks();
    const size_t begin = at_;
    const std::string_view word =
        TakeWhile([](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; });
    const size_t dot = word.find('.');
    const std::optional<FilterField> field = kFilterFieldNames.Parse(word.substr(0, dot));
    const bool of_label = field == FilterField::kLabel;
    if (!field || (dot != std::string_view::npos && !of_label)) {
      return FailAt(begin, absl::StrCat("a field (", kAcceptedFields, "), NOT or ("));
    }
    comparison.field = *field;
    if (!of_label) return true;
    if (dot != std::string_view::npos) {
      comparison.key = word.substr(dot + 1);
      if (!IsLabelKey(comparison.key)) return FailAt(begin + dot + 1, "a label's key, [a-z][a-z0-9_-]{0,62}");
    }
    return true;
  }

  bool ParseOperator(FilterComparison& comparison) {
    static constexpr std::pair<const char*, FilterOperator> kOperators[] = {
        {"!=", FilterOperator::kNotEqual}, {"<=", FilterOperator::kLessEqual}, {">=", FilterOperator::kGreaterEqual},
        {"=", FilterOperator::kEqual},     {"<", FilterOperator::kLess},       {">", FilterOperator::kGreater},
        {":", FilterOperator::kHas}};
    SkipBlanks();
    const size_t begin = at_;
    const bool label = comparison.field == FilterField::kLabel, keyed = !comparison.key.empty();
    for (const auto& [text, op] : kOperators) {
      if (!Take(text)) continue;
      comparison.op = op;
      const bool has = op == FilterOperator::kHas;
      const bool equality = op == FilterOperator::kEqual || op == FilterOperator::kNotEqual;
      const bool fits = label && !keyed ? has : (equality || (has && label) || (!has && HasOrder(comparison.field)));
      if (fits) return true;
      break;
    }
    return FailAt(begin, label && !keyed              ? ".KEY or :KEY"
                         : label                      ? "one of = != :"
                         : HasOrder(comparison.field) ? "one of = != < <= > >="
                                                      : "one of = !=");
  }

  // Parses a word, or a quoted text.
  std::optional<std::string> ParseValue(bool& quoted) {
    const size_t begin = at_;
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    quoted = quote == '"' || quote == '\'';
    if (!quoted) {
      const std::string_view word = TakeWhile([](unsigned char c) {
        return absl::ascii_isalnum(c) ||
               std::string_view("_-./:+*").find(static_cast<char>(c)) != std::string_view::npos;
      });
      if (word.empty()) return FailText(begin, "a value");
      return std::string(word);
    }
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return value;
      }
      if (c == '\\' && at_ + 1 < text_.size()) c = text_[++at_];
      value.push_back(c);
    }
    return FailText(begin, absl::StrCat("a closing ", std::string(1, quote), " for this one"));
  }

  // Sets the value of a comparison. `begin` is the position of the value in the text.
  bool SetValue(const std::string& value, bool quoted, size_t begin, FilterComparison& comparison) {
    switch (comparison.field) {
      case FilterField::kName:
        comparison.text = std::string(absl::StripPrefix(value, "jobs/"));
        return true;
      case FilterField::kDataset:
        comparison.text = std::string(absl::StripPrefix(value, "datasets/"));
        return true;
      case FilterField::kState:
        if (const auto state = ParseFilterState(value)) {
          comparison.state = *state;
          return true;
        }
        return FailAt(begin, absl::StrCat("a state: ", StateList()));
      case FilterField::kPriority:
        return absl::SimpleAtoi(value, &comparison.number) || FailAt(begin, "a whole number");
      case FilterField::kLabel:
        // The filter is labels:KEY, or labels.KEY with a value.
        if (comparison.key.empty()) {
          comparison.key = value;
          comparison.any_value = true;
          return IsLabelKey(value) || FailAt(begin, "a label's key, [a-z][a-z0-9_-]{0,62}");
        }
        comparison.any_value = comparison.op == FilterOperator::kHas && !quoted && value == "*";
        comparison.text = value;
        return true;
      case FilterField::kCreateTime:
      case FilterField::kStartTime:
      case FilterField::kEndTime:
        return absl::ParseTime(absl::RFC3339_full, value, &comparison.time, nullptr) ||
               FailAt(begin, "a time as \"2026-01-31T13:00:00Z\"");
    }
    return false;
  }

  static std::string StateList() {
    return absl::StrJoin(kJobStateNames.rows, ", ", [](std::string* out, const auto& row) {
      absl::StrAppend(out, absl::StrReplaceAll(absl::AsciiStrToUpper(AbslView(row.second)), {{"-", "_"}}));
    });
  }

  void SkipBlanks() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }
  bool Take(std::string_view symbol) {
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  // Takes the word if it comes next, and not only as the beginning of a longer word.
  bool TakeWord(std::string_view word) {
    SkipBlanks();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word)) return false;
    if (rest.size() > word.size()) {
      const char next = rest[word.size()];
      if (!absl::ascii_isspace(static_cast<unsigned char>(next)) && next != '(') return false;
    }
    at_ += word.size();
    return true;
  }
  template <class F>
  std::string_view TakeWhile(F f) {
    const size_t begin = at_;
    while (at_ < text_.size() && f(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool FailAt(size_t place, std::string_view accepted) {
    constexpr size_t kShown = 24;
    std::string_view rest = text_.substr(std::min(place, text_.size()));
    const bool cut = rest.size() > kShown;
    rest = rest.substr(0, kShown);
    error_ = absl::StrCat(
        "at character ", place + 1, ", ",
        rest.empty() ? "the end" : absl::StrCat("\"", absl::CHexEscape(AbslView(rest)), cut ? "..." : "", "\""),
        ": accepted here: ", AbslView(accepted));
    return false;
  }
  std::nullopt_t FailText(size_t place, std::string_view accepted) {
    FailAt(place, accepted);
    return std::nullopt;
  }
  std::nullopt_t Fail(std::string_view accepted) { return FailText(at_, accepted); }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string error_;
};

absl::Status FilterError(std::string_view description) {
  Violations violations;
  violations.Add("filter", description);
  return violations.ToStatus();
}

}  // namespace

JobFilter::JobFilter() = default;
JobFilter::~JobFilter() = default;
JobFilter::JobFilter(JobFilter&&) noexcept = default;
JobFilter& JobFilter::operator=(JobFilter&&) noexcept = default;

absl::StatusOr<JobFilter> JobFilter::Parse(std::string_view text) {
  JobFilter filter;
  if (absl::StripAsciiWhitespace(AbslView(text)).empty()) return filter;
  if (text.size() > kMaxFilterLength) {
    return FilterError(absl::StrCat("has ", text.size(), " characters; accepted: at most ", kMaxFilterLength));
  }
  FilterParser parser(text);
  std::optional<FilterNode> root = parser.ParseAll();
  if (!root) return FilterError(parser.error());
  filter.root_ = std::make_unique<const FilterNode>(*std::move(root));
  return filter;
}

bool JobFilter::Matches(const Job& job) const { return root_ == nullptr || root_->Matches(job); }

std::string MakePageToken(int64_t sequence, const JobQuery& query) {
  return absl::WebSafeBase64Escape(absl::StrCat(sequence, ".", Checksum(sequence, query)));
}

absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobQuery& query) {
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    int64_t sequence = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sequence);
    // Compares the token with a newly made one, so that only the exact spelling is accepted.
    if (error == std::errc() && MakePageToken(sequence, query) == token) return sequence;
  }
  Violations violations;
  violations.Add("page_token",
                 "was not given by a list of the same states and filter; leave it empty for the first page");
  return violations.ToStatus();
}

}  // namespace permafrost::jobs
