#include "elastiquant/exchange/bucket_memory.h"

namespace elastiquant {

BucketMemory::BucketMemory(const Codec& codec, size_t elements)
    : before_(codec.StateFields().size(), std::vector<float>(elements)), after_(before_) {}

BucketMemory::Part BucketMemory::PartOf(Chunk chunk) {
  Part part;
  part.fields = fields();
  for (size_t f = 0; f < fields(); ++f) {
    part.before_fields[f] = std::span(before_[f]).subspan(chunk.begin, chunk.size);
    part.after_fields[f] = std::span(after_[f]).subspan(chunk.begin, chunk.size);
  }
  return part;
}

}  // namespace elastiquant
