#include "elastiquant/train/loop/step_pool.h"

#include <utility>

namespace elastiquant {

void StepPool::Ask() {
  asked_ = std::async(std::launch::async, [comm = comm_] { return comm->TakeNumber(); });
}

Result<int64_t> StepPool::Next() {
  if (!number_) {
    if (!asked_.valid()) Ask();
    EQ_ASSIGN_OR_RETURN(number_, asked_.get());
  }
  return first_ + static_cast<int64_t>(*number_) / comm_->world_size();
}

void StepPool::Take() {
  const uint64_t before = std::exchange(taken_, *number_ + 1);
  taken_since_ = taken_ - before;
  number_.reset();
  Ask();
}

}  // namespace elastiquant
