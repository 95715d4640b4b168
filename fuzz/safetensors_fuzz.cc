// Any bytes, taken as a safetensors file: an error, or what survives being written and read
// again. Each input is tried as it is, and again as a header up to its last brace and the data
// behind it, so that mutations need not keep the header's size right.
#include <algorithm>
#include <cstring>
#include <vector>

#include "elastiquant/runs/safetensors.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

void TryFile(std::span<const uint8_t> bytes) {
  const auto file = ParseSafetensors(bytes);
  if (!file.ok()) {
    FUZZ_CHECK(file.status().code() == StatusCode::kCorruptData);
    FUZZ_CHECK(file.status().message().find("check failed") != std::string::npos);
    return;
  }
  for (const auto& [name, tensor] : file->tensors) {
    size_t size = DtypeBytes(tensor.dtype);
    FUZZ_CHECK(size > 0);
    for (const int64_t n : tensor.shape) size *= static_cast<size_t>(n);
    FUZZ_CHECK(size == tensor.bytes.size() && size <= bytes.size());
  }
  const std::vector<uint8_t> written = SerializeSafetensors(*file);
  const auto back = ParseSafetensors(written);
  FUZZ_CHECK(back.ok() && *back == *file);
  FUZZ_CHECK(SerializeSafetensors(*back) == written);
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  elastiquant::TryFile(bytes);
  const auto brace = std::find(bytes.rbegin(), bytes.rend(), '}');
  const uint64_t header = static_cast<uint64_t>(bytes.rend() - brace);
  std::vector<uint8_t> file(sizeof(header));
  std::memcpy(file.data(), &header, sizeof(header));
  file.insert(file.end(), bytes.begin(), bytes.end());
  elastiquant::TryFile(file);
  return 0;
}
