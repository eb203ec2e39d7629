#include "graphcache/audit.h"

#include <algorithm>
#include <array>
#include <utility>

namespace permafrost::graphcache {

bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step) {
  if (every <= 0) return false;
  if (mode == Mode::kTrain) return step > 0 && step % every == 0;
  return step / every > eval_audit_step / every;
}

bool IsProduct(std::string_view op) {
  constexpr std::array<std::string_view, 7> kProducts{"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
                                                      "aten::mv", "aten::addmv", "aten::dot"};
  return std::ranges::find(kProducts, op) != kProducts.end();
}

const std::vector<StepProfile>& StepProfiles::list() const {
  static const auto& none = *new std::vector<StepProfile>();
  return list_ == nullptr ? none : *list_;
}

void StepProfiles::Set(StepProfile profile) {
  std::vector<StepProfile> all = list();
  std::erase_if(all, [&](const StepProfile& p) { return p.mode == profile.mode; });
  all.push_back(std::move(profile));
  std::ranges::sort(all, {}, &StepProfile::mode);
  Assign(std::move(all));
}

void StepProfiles::Assign(std::vector<StepProfile> list) {
  list_ = std::make_shared<const std::vector<StepProfile>>(std::move(list));
}

}  // namespace permafrost::graphcache
