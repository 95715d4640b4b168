#include "elastiquant/train/own_state.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/number.h"
#include "elastiquant/base/random.h"

namespace elastiquant {

std::vector<std::span<float>> SpansOf(const Replica& replica) {
  std::vector<std::span<float>> spans;
  for (const NamedTensor& p : replica.parameters()) {
    spans.emplace_back(p.tensor.data_ptr<float>(), static_cast<size_t>(p.tensor.numel()));
  }
  return spans;
}

std::vector<float> ValuesOf(std::span<const std::span<float>> spans) {
  std::vector<float> values;
  for (const std::span<float> span : spans) {
    values.insert(values.end(), span.begin(), span.end());
  }
  return values;
}

void SetValues(std::span<const float> values, std::span<const std::span<float>> spans) {
  for (const std::span<float> span : spans) {
    std::ranges::copy(values.first(span.size()), span.begin());
    values = values.subspan(span.size());
  }
}

FragmentOptions FragmentOptionsOf(const TrainOptions& options,
                                  const std::vector<double>& weights) {
  FragmentOptions fragments;
  fragments.codec = options.codec;
  fragments.exact = options.exact;
  fragments.exchange = options.exchange;
  fragments.down = options.codec_down;
  fragments.bucket_elements = static_cast<size_t>(options.bucket_kib) * 1024 / sizeof(float);
  fragments.reducer.seed = Mix64(options.seed);  // apart from the streams of weights and data
  fragments.reducer.weights = weights;
  fragments.reducer.threads = options.codec_threads;
  fragments.reducer.measure_every = static_cast<uint64_t>(options.measure_every);
  return fragments;
}

void SaveFloats(const std::string& name, std::span<const float> values,
                Checkpoint* checkpoint) {
  checkpoint->tensors[name] = {
      .dtype = "F32", .shape = {static_cast<int64_t>(values.size())}, .bytes = BytesOf(values)};
}

Status LoadFloats(const Checkpoint& checkpoint, const std::string& name,
                  std::span<float> values) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end() ||
      found->second.bytes.size() != values.size() * sizeof(float)) {
    return CorruptData("section " + name + " is missing or has a wrong size");
  }
  std::ranges::copy(found->second.bytes, reinterpret_cast<uint8_t*>(values.data()));
  return {};
}

void SaveDoubles(const std::string& name, std::span<const double> values,
                 Checkpoint* checkpoint) {
  checkpoint->tensors[name] = {
      .dtype = "F64", .shape = {static_cast<int64_t>(values.size())}, .bytes = BytesOf(values)};
}

Result<std::vector<double>> LoadDoubles(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end() || found->second.bytes.size() % sizeof(double) != 0) {
    return CorruptData("section " + name + " is missing or has a wrong size");
  }
  const std::vector<uint8_t>& bytes = found->second.bytes;
  std::vector<double> values(bytes.size() / sizeof(double));
  std::ranges::copy(bytes, reinterpret_cast<uint8_t*>(values.data()));
  return values;
}

Result<int64_t> LoadCount(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.metadata.find(name);
  int64_t count = 0;
  if (found != checkpoint.metadata.end() && ParseNumber(found->second, &count) && count >= 0) {
    return count;
  }
  return CorruptData("entry " + name + " is missing or no count");
}

void SaveSections(Sections sections, const std::string& prefix, Checkpoint* checkpoint) {
  for (auto& [name, bytes] : sections) {
    const std::string dtype = name.starts_with("step")    ? "I64"
                              : name.starts_with("units") ? "F64"
                                                          : "F32";
    const auto values = static_cast<int64_t>(bytes.size() / DtypeBytes(dtype));
    checkpoint->tensors[prefix + name] = {
        .dtype = dtype, .shape = {values}, .bytes = std::move(bytes)};
  }
}

Sections SectionsBehind(const std::string& prefix, const Checkpoint& checkpoint) {
  Sections sections;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.starts_with(prefix)) sections[name.substr(prefix.size())] = tensor.bytes;
  }
  return sections;
}

void SaveMemoryOf(const FragmentReduction& reduction, const std::string& prefix,
                  Checkpoint* checkpoint) {
  Sections memory;
  reduction.SaveMemory(&memory);
  SaveSections(std::move(memory), prefix, checkpoint);
}

Status LoadMemoryOf(const Checkpoint& checkpoint, const std::string& prefix,
                    FragmentReduction* reduction) {
  return reduction->LoadMemory(SectionsBehind(prefix, checkpoint));
}

}  // namespace elastiquant
