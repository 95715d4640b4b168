#include "elastiquant/layers/level_adapter.h"

#include <utility>

#include "elastiquant/codec/elastic/adapt.h"
#include "elastiquant/layers/agreement.h"

namespace elastiquant {

bool LevelAdapter::Due(int64_t step) const {
  return every_ == 0 ? IsAdaptationStep(static_cast<uint64_t>(step)) : step % every_ == 0;
}

void LevelAdapter::Capture(std::span<const float> bucket) {
  if (comm_->rank() == 0) captured_.emplace_back(bucket.begin(), bucket.end());
}

Result<std::shared_ptr<const Codec>> LevelAdapter::Adapt(const Codec& codec) {
  const auto captured = std::exchange(captured_, {});
  std::string spec;
  Status status;
  if (comm_->rank() == 0) {
    const std::vector<std::span<const float>> messages(captured.begin(), captured.end());
    Result<std::string> adapted = AdaptSpec(codec, messages);
    status = adapted.status();
    if (adapted.ok()) spec = *std::move(adapted);
  }
  // A failure of worker 0 ends the run with its words; the others learn of it by its end.
  EQ_RETURN_IF_ERROR(status);
  EQ_ASSIGN_OR_RETURN(spec, ShareText(*comm_, spec));
  return MakeCodec(spec);
}

}  // namespace elastiquant
