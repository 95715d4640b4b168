// What the codec of a bucket remembers on this worker from one step to the next.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/exchange/chunk.h"

namespace elastiquant {

// Two versions of each of Codec::StateFields(): a step reads the one and writes the other, and
// only a step that all workers complete is kept.
class BucketMemory {
 public:
  static constexpr size_t kMaxFields = 4;

  BucketMemory() = default;
  // Nothing is remembered of a codec without state. `codec` has at most kMaxFields.
  BucketMemory(const Codec& codec, size_t elements);

  size_t fields() const { return before_.size(); }
  // Of a step: field `f` of a part of the bucket, as it was and as it shall be.
  struct Part {
    StateIn before() const { return {before_fields.data(), fields}; }
    StateOut after() const { return {after_fields.data(), fields}; }
    size_t fields = 0;
    std::array<std::span<const float>, kMaxFields> before_fields;
    std::array<std::span<float>, kMaxFields> after_fields;
  };
  Part PartOf(Chunk chunk);

  // All that was written becomes what is remembered. Every part must have been written.
  void Commit() { before_.swap(after_); }

  // Field `f`, between steps.
  std::span<float> field(size_t f) { return before_[f]; }

 private:
  std::vector<std::vector<float>> before_, after_;
};

}  // namespace elastiquant
