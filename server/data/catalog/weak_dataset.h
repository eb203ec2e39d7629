// A store that stays open while somebody uses it, and not for whoever keeps this.
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "data/store/dataset.h"

namespace permafrost::data {

class WeakDataset {
 public:
  WeakDataset() = default;
  explicit WeakDataset(const OpenedDataset& dataset) {
    std::visit([this](const auto& store) { store_ = std::weak_ptr(store); }, dataset);
  }
  // nullopt: nobody has it open.
  std::optional<OpenedDataset> Lock() const {
    return std::visit(
        [](const auto& weak) -> std::optional<OpenedDataset> {
          if (auto store = weak.lock()) return store;
          return std::nullopt;
        },
        store_);
  }

 private:
  std::variant<std::weak_ptr<const GraphSet>, std::weak_ptr<const Graph>> store_;
};

}  // namespace permafrost::data
