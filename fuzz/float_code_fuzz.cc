// Byte 0 says how many values are decoded from the rest as it stands, tables and bits; and the
// rest, taken as floats, must come back.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "elastiquant/coding/float_code.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

void TryDecode(std::span<const uint8_t> in, size_t count) {
  size_t table = 0;
  const auto code = FloatCode::Read(in, &table);
  if (!code.ok()) return;
  BitReader reader(in.subspan(table));
  std::vector<float> values(count);
  if (!FloatDecoder(*code).Decode(reader, values)) return;
  FUZZ_CHECK(std::ranges::all_of(values, [](float v) { return std::isfinite(v); }));
}

std::vector<float> Values(std::span<const uint8_t> in) {
  std::vector<float> values;
  for (size_t i = 0; i + 4 <= in.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, in.data() + i, sizeof(value));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

void TryRoundTrip(const std::vector<float>& values) {
  int top = 0;
  for (const float v : values) {
    top = std::max(top, static_cast<int>(std::bit_cast<uint32_t>(v) >> 23 & 0xFF));
  }
  FloatCounts counts(top);
  counts.Add(values);
  const FloatCode code(counts);
  uint8_t table[FloatCode::kMaxTableBytes];
  const size_t table_bytes = code.Write(table);
  std::vector<uint8_t> stream(code.Bits(counts) / 8 + 9);
  BitWriter writer(stream);
  code.Encode(values, writer);
  size_t size = 0;
  FUZZ_CHECK(writer.Finish(&size) && size == (code.Bits(counts) + 7) / 8);

  size_t read = 0;
  const auto again = FloatCode::Read({table, table_bytes}, &read);
  FUZZ_CHECK(again.ok() && read == table_bytes);
  BitReader reader(std::span<const uint8_t>(stream).first(size));
  std::vector<float> back(values.size());
  FUZZ_CHECK(FloatDecoder(*again).Decode(reader, back) && reader.AtFinish());
  FUZZ_CHECK(std::memcmp(back.data(), values.data(), values.size() * sizeof(float)) == 0);
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  elastiquant::TryDecode(rest, data[0]);
  const std::vector<float> values = elastiquant::Values(rest);
  if (!values.empty()) elastiquant::TryRoundTrip(values);
  return 0;
}
