#include "graphcache/findings.h"

#include <algorithm>
#include <utility>

namespace permafrost::graphcache {

bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step) {
  if (every <= 0) return false;
  if (mode == Mode::kTrain) return step == 1 || (step > 0 && step % every == 0);
  return (eval_audit_step == 0 && step > 0) || step / every > eval_audit_step / every;
}

bool IsProduct(std::string_view op) { return op == "aten::mm" || op == "aten::addmm"; }

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
