#include "data/import/renumbering.h"

#include <algorithm>

#include "base/status.h"

namespace permafrost::data {

Renumbering Renumbering::FromOrder(std::span<const NodeId> old_of_new) {
  Renumbering out;
  out.new_of_old_.resize(old_of_new.size());
  for (size_t row = 0; row < old_of_new.size(); ++row) out.new_of_old_[old_of_new[row]] = static_cast<NodeId>(row);
  return out;
}

NodeId Renumbering::Old(NodeId row) const {
  if (none()) return row;
  return static_cast<NodeId>(std::ranges::find(new_of_old_, row) - new_of_old_.begin());
}

std::vector<NodeId> Renumbering::OldOfNew() const {
  std::vector<NodeId> out(new_of_old_.size());
  for (size_t old = 0; old < new_of_old_.size(); ++old) out[new_of_old_[old]] = static_cast<NodeId>(old);
  return out;
}

absl::Status WriteSourceRows(const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary) {
  if (renumbering.none()) return absl::OkStatus();
  summary.named = true;
  PF_RETURN_IF_ERROR(writer.Begin(SectionKind::kNodeNumbers, ElementType::kUint64));
  constexpr size_t kPiece = size_t{1} << 16;
  const std::vector<NodeId> old_of_new = renumbering.OldOfNew();
  std::vector<uint64_t> numbers;
  for (size_t at = 0; at < old_of_new.size(); at += kPiece) {
    const auto piece = std::span(old_of_new).subspan(at, std::min(kPiece, old_of_new.size() - at));
    numbers.assign(piece.begin(), piece.end());
    PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(numbers))));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
