#include "elastiquant/train/own_state.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/number.h"

namespace elastiquant {

std::vector<std::span<float>> SpansOf(const Replica& replica) {
  std::vector<std::span<float>> spans;
  for (const NamedTensor& p : replica.parameters()) {
    spans.emplace_back(p.tensor.data_ptr<float>(), static_cast<size_t>(p.tensor.numel()));
  }
  return spans;
}

StateIdentity IdentityOf(const Communicator& comm, std::span<const ParameterShape> shapes,
                         const std::vector<std::string>& specs) {
  StateIdentity identity{.rank = comm.rank(), .world_size = comm.world_size(), .layers = {}};
  for (size_t p = 0; p < shapes.size(); ++p) {
    identity.layers.push_back({shapes[p].name, shapes[p].elements, specs[p]});
  }
  return identity;
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

Result<int64_t> LoadCount(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.metadata.find(name);
  int64_t count = 0;
  if (found != checkpoint.metadata.end() && ParseNumber(found->second, &count) && count >= 0) {
    return count;
  }
  return CorruptData("entry " + name + " is missing or no count");
}

void SaveMemoryOf(const FragmentReduction& reduction, const std::string& prefix,
                  Checkpoint* checkpoint) {
  Sections memory;
  reduction.SaveMemory(&memory);
  for (auto& [name, bytes] : memory) {
    const auto values = static_cast<int64_t>(bytes.size() / sizeof(float));
    checkpoint->tensors[prefix + name] = {
        .dtype = "F32", .shape = {values}, .bytes = std::move(bytes)};
  }
}

Status LoadMemoryOf(const Checkpoint& checkpoint, const std::string& prefix,
                    FragmentReduction* reduction) {
  Sections memory;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.starts_with(prefix)) memory[name.substr(prefix.size())] = tensor.bytes;
  }
  return reduction->LoadMemory(memory);
}

}  // namespace elastiquant
