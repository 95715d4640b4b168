#include "elastiquant/layers/codec_memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "elastiquant/base/bytes.h"

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

Status CheckSection(const Sections& sections, const std::string& name, size_t elements) {
  const auto section = sections.find(name);
  if (section == sections.end()) {
    return CorruptData("section " + name + " is missing");
  }
  if (section->second.size() != elements * sizeof(float)) {
    return CorruptData("section " + name + " should have " +
                       std::to_string(elements * sizeof(float)) + " bytes, it has " +
                       std::to_string(section->second.size()));
  }
  return Status::Ok();
}

// After CheckSection.
std::vector<float> ReadSection(const Sections& sections, const std::string& name) {
  const std::vector<uint8_t>& bytes = sections.at(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

CodecMemory::CodecMemory(const BucketPlan& plan, std::span<const ParameterShape> shapes,
                         std::vector<std::vector<std::string>> fields, double weight,
                         GradientReducer* reducer)
    : plan_(plan),
      shapes_(shapes),
      fields_(std::move(fields)),
      workers_(static_cast<float>(1 / weight)),
      reducer_(reducer) {
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    for (const BucketSlot& slot : plan_.buckets[b].slots) {
      places_[slot.parameter] = {b, slot.offset};
    }
  }
}

void CodecMemory::SaveEmpty(const ParameterShape& shape, std::span<const std::string> fields,
                            Sections* sections) {
  const std::vector<uint8_t> zeros(shape.elements * sizeof(float));
  for (const std::string& field : fields) {
    (*sections)[OwnSection(field, shape.name)] = zeros;
    (*sections)[MeanSection(field, shape.name)] = zeros;
  }
}

Status CodecMemory::Check(const ParameterShape& shape, std::span<const std::string> fields,
                          const Sections& sections) {
  for (const std::string& field : fields) {
    EQ_RETURN_IF_ERROR(CheckSection(sections, OwnSection(field, shape.name), shape.elements));
    EQ_RETURN_IF_ERROR(CheckSection(sections, MeanSection(field, shape.name), shape.elements));
  }
  return Status::Ok();
}

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
        (*sections)[OwnSection(fields_[b][f], shape.name)] = BytesOf<float>(own);
        (*sections)[MeanSection(fields_[b][f], shape.name)] = BytesOf<float>(mean);
      }
    }
  }
}

Status CodecMemory::CheckAll(const Sections& sections) const {
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    for (const BucketSlot& slot : plan_.buckets[b].slots) {
      EQ_RETURN_IF_ERROR(Check(shapes_[slot.parameter], fields_[b], sections));
    }
  }
  return Status::Ok();
}

Status CodecMemory::Load(const Sections& sections) {
  EQ_RETURN_IF_ERROR(CheckAll(sections));
  // A worker of weight 0 cannot make up for what a mean lost.
  const float of_mean = std::isfinite(workers_) ? workers_ : 0;
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto memory = reducer_->Memory(b);
    for (size_t f = 0; f < memory.size(); ++f) {
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        const ParameterShape& shape = shapes_[slot.parameter];
        const auto own = ReadSection(sections, OwnSection(fields_[b][f], shape.name));
        const auto mean = ReadSection(sections, MeanSection(fields_[b][f], shape.name));
        const auto values = memory[f].subspan(slot.offset, shape.elements);
        // In an unchanged layout one of the two is 0, and the other comes back as it was.
        ForEachOf(slot, shape.elements, reducer_->OwnedChunk(b), [&](size_t i, bool owned) {
          values[i] = owned ? mean[i] + own[i] / workers_ : own[i] + mean[i] * of_mean;
        });
      }
    }
  }
  return Status::Ok();
}

template <typename Fn>
void CodecMemory::ForEachField(size_t parameter, const Fn& fn) const {
  const auto [bucket, offset] = places_.at(parameter);
  const auto memory = reducer_->Memory(bucket);
  for (size_t f = 0; f < memory.size(); ++f) {
    fn(fields_[bucket][f], memory[f].subspan(offset, shapes_[parameter].elements));
  }
}

void CodecMemory::Rescale(size_t parameter, double factor) {
  ForEachField(parameter, [factor](const std::string& field, std::span<float> values) {
    if (field != "residual" && field != "velocity") return;
    for (float& v : values) v = static_cast<float>(v * factor);
  });
}

std::vector<float> CodecMemory::Copy(size_t parameter) const {
  std::vector<float> copy;
  ForEachField(parameter, [&](const std::string&, std::span<const float> values) {
    copy.insert(copy.end(), values.begin(), values.end());
  });
  return copy;
}

void CodecMemory::PutBack(size_t parameter, std::span<const float> copy) {
  ForEachField(parameter, [&](const std::string&, std::span<float> values) {
    std::ranges::copy(copy.first(values.size()), values.begin());
    copy = copy.subspan(values.size());
  });
}

}  // namespace elastiquant
