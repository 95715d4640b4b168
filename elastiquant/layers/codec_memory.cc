#include "elastiquant/layers/codec_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace elastiquant {
namespace {

// Calls fn(i, owned) for each coordinate of a slot.
template <typename Fn>
void ForEachOf(const BucketSlot& slot, size_t elements, Chunk owned, const Fn& fn) {
  for (size_t i = 0; i < elements; ++i) {
    const size_t at = slot.offset + i;
    fn(i, at >= owned.begin && at < owned.begin + owned.size);
  }
}

std::string OwnSection(const std::string& field, const std::string& parameter) {
  return "memory/" + field + "/" + parameter;
}
std::string MeanSection(const std::string& field, const std::string& parameter) {
  return "mean-memory/" + field + "/" + parameter;
}

std::vector<uint8_t> BytesOf(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Result<std::vector<float>> ReadSection(const Sections& sections, const std::string& name,
                                       size_t elements) {
  const auto section = sections.find(name);
  if (section == sections.end()) {
    return CorruptData("section " + name + " is missing");
  }
  if (section->second.size() != elements * sizeof(float)) {
    return CorruptData("section " + name + " should have " +
                       std::to_string(elements * sizeof(float)) + " bytes, it has " +
                       std::to_string(section->second.size()));
  }
  std::vector<float> values(elements);
  if (elements > 0)
    std::memcpy(values.data(), section->second.data(), elements * sizeof(float));
  return values;
}

}  // namespace

CodecMemory::CodecMemory(const BucketPlan& plan, std::span<const ParameterShape> shapes,
                         std::vector<std::vector<std::string>> fields, int world_size,
                         GradientReducer* reducer)
    : plan_(plan),
      shapes_(shapes),
      fields_(std::move(fields)),
      world_size_(static_cast<float>(world_size)),
      reducer_(reducer) {}

void CodecMemory::Save(Sections* sections) const {
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto memory = reducer_->Memory(b);
    for (size_t f = 0; f < memory.size(); ++f) {
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        const ParameterShape& shape = shapes_[slot.parameter];
        const auto values = memory[f].subspan(slot.offset, shape.elements);
        std::vector<float> own(shape.elements), mean(shape.elements);
        ForEachOf(slot, shape.elements, reducer_->OwnedChunk(b),
                  [&](size_t i, bool owned) { (owned ? mean : own)[i] = values[i]; });
        (*sections)[OwnSection(fields_[b][f], shape.name)] = BytesOf(own);
        (*sections)[MeanSection(fields_[b][f], shape.name)] = BytesOf(mean);
      }
    }
  }
}

Status CodecMemory::Load(const Sections& sections) {
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto memory = reducer_->Memory(b);
    for (size_t f = 0; f < memory.size(); ++f) {
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        const ParameterShape& shape = shapes_[slot.parameter];
        EQ_ASSIGN_OR_RETURN(
            const auto own,
            ReadSection(sections, OwnSection(fields_[b][f], shape.name), shape.elements));
        EQ_ASSIGN_OR_RETURN(
            const auto mean,
            ReadSection(sections, MeanSection(fields_[b][f], shape.name), shape.elements));
        const auto values = memory[f].subspan(slot.offset, shape.elements);
        // In an unchanged layout one of the two is 0, and the other comes back as it was.
        ForEachOf(slot, shape.elements, reducer_->OwnedChunk(b), [&](size_t i, bool owned) {
          values[i] = owned ? mean[i] + own[i] / world_size_ : own[i] + mean[i] * world_size_;
        });
      }
    }
  }
  return Status::Ok();
}

}  // namespace elastiquant
