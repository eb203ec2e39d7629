#include "data/import/feature_sink.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/stored_values.h"
#include "data/store/element_type.h"
#include "data/store/from_float.h"

namespace permafrost::data {
namespace {

constexpr double kMostSteps = 127;

const Renumbering kNotRenumbered;

DataType StoredAs(FeatureType as, DataType type) {
  switch (as) {
    case FeatureType::kAsIs:
      return type;
    case FeatureType::kFloat32:
      return DataType::kFloat32;
    case FeatureType::kFloat16:
      return DataType::kFloat16;
    case FeatureType::kBfloat16:
      return DataType::kBfloat16;
    case FeatureType::kInt8:
      return DataType::kInt8;
  }
  return type;
}

double LargestOf(const FeatureSummary& summary, size_t column) {
  return std::max(std::fabs(summary.min[column]), std::fabs(summary.max[column]));
}

// Returns the scale of which kMostSteps make `largest`, rounded down where that would leave float32.
float ScaleFor(double largest) {
  auto scale = static_cast<float>(largest / kMostSteps);
  while (!std::isfinite(scale * static_cast<float>(kMostSteps))) scale = std::nextafter(scale, 0.0f);
  return scale;
}

int8_t StepsOf(double value, float scale) {
  if (scale == 0) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(value / static_cast<double>(scale)), -kMostSteps, kMostSteps));
}

}  // namespace

absl::Status FeatureSink::Begin(DataType type, uint64_t width) {
  type_ = type;
  stored_ = StoredAs(due_.as, type);
  width_ = width;
  if (converts()) errors_.assign(width, {});
  keeps_values_ = due_.section == SectionKind::kEdgeFeatures && IsCategorical(stored_);
  const Renumbering& renumbering = due_.renumbering == nullptr ? kNotRenumbered : *due_.renumbering;
  const bool scaled = stored_ == DataType::kInt8;
  if (renumbering.none() && !scaled) {
    return writer_.Begin(due_.section, ElementTypeOf(stored_), static_cast<uint32_t>(width));
  }
  PF_ASSIGN_OR_RETURN(spool_, RowSpool::Create({.directory = directory_,
                                                .rows = due_.rows,
                                                .row_bytes = width * ElementBytes(scaled ? type_ : stored_),
                                                .memory_bytes = due_.memory_bytes},
                                               renumbering, monitor_.stop()));
  return absl::OkStatus();
}

absl::Status FeatureSink::Append(std::span<const std::byte> rows, const Fault& fault) {
  if (converts() && stored_ != DataType::kInt8) {
    PF_RETURN_IF_ERROR(Narrow(rows, fault));
    rows = converted_;
  }
  if (keeps_values_) {
    const size_t count = rows.size() / ElementBytes(type_);
    WithIntegers(type_, [&](const auto& value_at) {
      for (size_t i = 0; i < count; ++i) values_.Add(i % width_, value_at(rows.data(), i));
    });
  }
  appended_ += rows.size() / (width_ * ElementBytes(stored_ == DataType::kInt8 ? type_ : stored_));
  return spool_ ? spool_->Append(rows) : writer_.Append(rows);
}

absl::Status FeatureSink::Narrow(std::span<const std::byte> rows, const Fault& fault) {
  const size_t count = rows.size() / ElementBytes(type_);
  converted_.resize(count * ElementBytes(stored_));
  const auto place = [&](size_t i, const auto& bits) {
    std::memcpy(converted_.data() + i * sizeof(bits), &bits, sizeof(bits));
  };
  // The first value that becomes infinite; `count` where none does.
  const size_t bad = WithValues(type_, [&](const auto& value_at) {
    for (size_t i = 0, column = 0; i < count; ++i) {
      const double value = value_at(rows.data(), i);
      auto stored = static_cast<float>(value);
      if (stored_ == DataType::kFloat16) {
        const uint16_t half = FloatToHalf(stored);
        place(i, half);
        stored = HalfToFloat(half);
      } else if (stored_ == DataType::kBfloat16) {
        const uint16_t bits = FloatToBfloat16(stored);
        place(i, bits);
        stored = Bfloat16ToFloat(bits);
      } else {
        place(i, stored);
      }
      if (!std::isfinite(stored)) return i;
      NoteError(column, std::fabs(value - static_cast<double>(stored)));
      if (++column == width_) column = 0;
    }
    return count;
  });
  if (bad == count) return absl::OkStatus();
  const double value = WithValues(type_, [&](const auto& value_at) { return value_at(rows.data(), bad); });
  const double most = stored_ == DataType::kFloat16 ? 65504 : static_cast<double>(Bfloat16ToFloat(0x7f7f));
  return fault(appended_ * width_ + bad,
               absl::StrCat(value, " becomes infinite as ", AbslView(kDataTypeNames.Name(stored_)),
                            ", whose largest value is ", most));
}

absl::Status FeatureSink::WriteScaled(const FeatureSummary& summary) {
  scales_.resize(width_);
  for (size_t column = 0; column < width_; ++column) scales_[column] = ScaleFor(LargestOf(summary, column));
  PF_RETURN_IF_ERROR(writer_.Write(SectionKind::kNodeFeatureScales, ElementType::kFloat32,
                                   std::span<const float>(scales_), static_cast<uint32_t>(width_)));
  PF_RETURN_IF_ERROR(writer_.Begin(due_.section, ElementType::kInt8, static_cast<uint32_t>(width_)));
  return spool_->Drain([this](std::span<const std::byte> rows) {
    Quantize(rows);
    return writer_.Append(converted_);
  });
}

void FeatureSink::Quantize(std::span<const std::byte> rows) {
  const size_t count = rows.size() / ElementBytes(type_);
  converted_.resize(count);
  WithValues(type_, [&](const auto& value_at) {
    for (size_t i = 0, column = 0; i < count; ++i) {
      const double value = value_at(rows.data(), i);
      const int8_t steps = StepsOf(value, scales_[column]);
      converted_[i] = static_cast<std::byte>(steps);
      NoteError(column, std::fabs(value - static_cast<double>(static_cast<float>(steps) * scales_[column])));
      if (++column == width_) column = 0;
    }
  });
}

absl::Status FeatureSink::Finish(FeatureSummary& summary) {
  if (stored_ == DataType::kInt8) {
    PF_RETURN_IF_ERROR(WriteScaled(summary));
  } else if (spool_) {
    PF_RETURN_IF_ERROR(writer_.Begin(due_.section, ElementTypeOf(stored_), static_cast<uint32_t>(width_)));
    PF_RETURN_IF_ERROR(spool_->Drain([this](std::span<const std::byte> rows) { return writer_.Append(rows); }));
  }
  spool_.reset();
  if (keeps_values_) writer_.categories().edge.tables = values_.TakeColumns(static_cast<int64_t>(width_));
  if (converts()) Describe(summary);
  return absl::OkStatus();
}

// Returns what the store gives back for a value.
double FeatureSink::Stored(double value, size_t column) const {
  const auto narrowed = static_cast<float>(value);
  switch (stored_) {
    case DataType::kFloat16:
      return HalfToFloat(FloatToHalf(narrowed));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(FloatToBfloat16(narrowed));
    case DataType::kInt8:
      return static_cast<float>(StepsOf(value, scales_[column])) * scales_[column];
    default:
      return narrowed;
  }
}

void FeatureSink::Describe(FeatureSummary& summary) const {
  summary.converted_from = type_;
  summary.type = stored_;
  double squares = 0;
  for (size_t column = 0; column < width_; ++column) {
    if (const double largest = LargestOf(summary, column); largest > 0) {
      summary.largest_error = std::max(summary.largest_error, errors_[column].largest / largest);
      squares += errors_[column].squares / (largest * largest);
    }
    // Every conversion keeps the order of values.
    summary.min[column] = Stored(summary.min[column], column);
    summary.max[column] = Stored(summary.max[column], column);
  }
  summary.rms_error = std::sqrt(squares / (static_cast<double>(due_.rows) * static_cast<double>(width_)));
}

}  // namespace permafrost::data
