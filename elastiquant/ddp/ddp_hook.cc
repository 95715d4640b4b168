#include "elastiquant/ddp/ddp_hook.h"

#include <utility>

namespace elastiquant {

DdpHook::DdpHook(std::shared_ptr<DdpEngine> engine, const std::vector<at::Tensor>& parameters)
    : engine_(std::move(engine)) {
  for (const at::Tensor& p : parameters) index_.emplace(p.unsafeGetTensorImpl(), index_.size());
}

c10::intrusive_ptr<c10::ivalue::Future> DdpHook::runHook(c10d::GradBucket& bucket) {
  std::vector<size_t> parameters;
  for (const at::Tensor& p : bucket.getParameters()) {
    const auto known = index_.find(p.unsafeGetTensorImpl());
    // Past the end: the engine refuses it in its own words.
    parameters.push_back(known == index_.end() ? index_.size() : known->second);
  }
  return engine_->Reduce(bucket.getIndex(), bucket.isLast(), bucket.getBufferRef(), parameters);
}

}  // namespace elastiquant
