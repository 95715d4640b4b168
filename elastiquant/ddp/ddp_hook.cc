#include "elastiquant/ddp/ddp_hook.h"

#include <utility>

namespace elastiquant {

void RestoreDiscarded(DdpEngine& engine, const c10d::Reducer& reducer) {
  if (!engine.awaits_restoring()) return;
  // DDP has added up how many workers have used each parameter.
  const at::Tensor used = reducer.get_local_used_map_on_device().cpu();
  std::vector<size_t> unused;
  for (int64_t p = 0; p < used.numel(); ++p) {
    if (used.const_data_ptr<int32_t>()[p] == 0) unused.push_back(static_cast<size_t>(p));
  }
  engine.RestoreMemory(unused);
}

DdpHook::DdpHook(std::shared_ptr<DdpEngine> engine, const std::vector<at::Tensor>& parameters,
                 const c10d::Reducer& reducer)
    : engine_(std::move(engine)),
      reducer_(reducer),
      ready_(reducer, parameters,
             [this](size_t index, const at::Tensor& g) { engine_->Offer(index, g); }) {
  for (const at::Tensor& p : parameters) index_.emplace(p.unsafeGetTensorImpl(), index_.size());
}

c10::intrusive_ptr<c10::ivalue::Future> DdpHook::runHook(c10d::GradBucket& bucket) {
  if (bucket.getIndex() == 0) RestoreDiscarded(*engine_, reducer_);
  std::vector<size_t> parameters;
  for (const at::Tensor& p : bucket.getParameters()) {
    const auto known = index_.find(p.unsafeGetTensorImpl());
    // Past the end: the engine refuses it in its own words.
    parameters.push_back(known == index_.end() ? index_.size() : known->second);
  }
  if (bucket.isLast()) {
    engine_->SetMayRebuild(reducer_.should_rebuild_buckets());
    ready_.EndBackward();
  }
  return engine_->Reduce(bucket.getIndex(), bucket.isLast(), bucket.getBufferRef(), parameters);
}

}  // namespace elastiquant
