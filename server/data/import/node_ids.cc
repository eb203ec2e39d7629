#include "data/import/node_ids.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace permafrost::data {

void NumberTable::Add(std::span<const uint64_t> numbers) {
  constexpr size_t kLeast = size_t{1} << 20;
  pending_.insert(pending_.end(), numbers.begin(), numbers.end());
  // Merged when there are as many as the rest, so that each is moved a logarithmic number of times.
  if (pending_.size() >= std::max(kLeast, numbers_.size())) Settle();
}

void NumberTable::Settle() {
  std::sort(pending_.begin(), pending_.end());
  pending_.erase(std::unique(pending_.begin(), pending_.end()), pending_.end());
  std::vector<uint64_t> all;
  all.reserve(numbers_.size() + pending_.size());
  std::set_union(numbers_.begin(), numbers_.end(), pending_.begin(), pending_.end(), std::back_inserter(all));
  numbers_ = std::move(all);
  pending_.clear();
}

void NumberTable::Finish() {
  Settle();
  std::vector<uint64_t>().swap(pending_);
  if (numbers_.empty()) return;
  // A table with holes, up to what a map would take.
  constexpr uint64_t kMostHoles = 5;
  const uint64_t span = numbers_.back() - numbers_.front();
  if (span / kMostHoles < numbers_.size()) {
    rows_.assign(span + 1, kNoRow);
    for (size_t row = 0; row < numbers_.size(); ++row)
      rows_[numbers_[row] - numbers_.front()] = static_cast<NodeId>(row);
    return;
  }
  map_.reserve(numbers_.size());
  for (size_t row = 0; row < numbers_.size(); ++row) map_.emplace(numbers_[row], static_cast<NodeId>(row));
}

NodeId NumberTable::Row(uint64_t number) const {
  if (!rows_.empty()) {
    const uint64_t place = number - numbers_.front();
    return place < rows_.size() ? rows_[place] : kNoRow;
  }
  const auto found = map_.find(number);
  return found == map_.end() ? kNoRow : found->second;
}

absl::Status NumberTable::Write(const Renumbering& renumbering, GraphWriter& writer) const {
  if (renumbering.none()) {
    return writer.Write(SectionKind::kNodeNumbers, ElementType::kUint64, std::span<const uint64_t>(numbers_));
  }
  std::vector<uint64_t> moved(numbers_.size());
  for (size_t row = 0; row < moved.size(); ++row) moved[renumbering.New(static_cast<NodeId>(row))] = numbers_[row];
  return writer.Write(SectionKind::kNodeNumbers, ElementType::kUint64, std::span<const uint64_t>(moved));
}

NodeId TextTable::Row(std::string_view text) {
  if (const auto found = map_.find(text); found != map_.end()) return found->second;
  const auto row = static_cast<NodeId>(texts_.size());
  texts_.push_back(Keep(text));
  map_.emplace(texts_.back(), row);
  return row;
}

std::string_view TextTable::Keep(std::string_view text) {
  constexpr size_t kBlockBytes = size_t{1} << 18;
  if (text.size() > room_) {
    room_ = std::max(kBlockBytes, text.size());
    text_bytes_ += room_;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
    block_end_ = blocks_.back().get() + room_;
  }
  char* const to = block_end_ - room_;
  std::memcpy(to, text.data(), text.size());
  room_ -= text.size();
  return {to, text.size()};
}

uint64_t TextTable::memory_bytes() const {
  // A slot of the map and its control byte.
  constexpr uint64_t kSlotBytes = sizeof(std::pair<std::string_view, NodeId>) + 1;
  return text_bytes_ + texts_.capacity() * sizeof(std::string_view) + map_.capacity() * kSlotBytes;
}

absl::Status TextTable::Write(const Renumbering& renumbering, GraphWriter& writer) const {
  std::vector<std::string_view> moved;
  if (!renumbering.none()) {
    moved.resize(texts_.size());
    for (size_t row = 0; row < moved.size(); ++row) moved[renumbering.New(static_cast<NodeId>(row))] = texts_[row];
  }
  const std::span<const std::string_view> texts = renumbering.none() ? texts_ : moved;
  std::vector<uint64_t> offsets = {0};
  offsets.reserve(texts.size() + 1);
  for (const std::string_view text : texts) offsets.push_back(offsets.back() + text.size());
  PF_RETURN_IF_ERROR(
      writer.Write(SectionKind::kNodeNameOffsets, ElementType::kUint64, std::span<const uint64_t>(offsets)));
  PF_RETURN_IF_ERROR(writer.Begin(SectionKind::kNodeNameText, ElementType::kBytes));
  for (const std::string_view text : texts) PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(text))));
  return absl::OkStatus();
}

}  // namespace permafrost::data
