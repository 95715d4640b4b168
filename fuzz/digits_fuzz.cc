// Byte 0 chooses the base, byte 1 how many digits there are. The rest is unpacked as it stands,
// which must give digits below the base and pack to the same bytes or be refused, and then,
// taken as digits, must come back.
#include <algorithm>
#include <span>
#include <vector>

#include "elastiquant/kernels/digits.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

void TryUnpack(std::span<const uint8_t> in, size_t n, int base) {
  if (in.size() < PackedDigitBytes(n, base)) return;
  // No byte more than are read, so that a sanitizer sees one beyond.
  const std::vector<uint8_t> packed(in.begin(), in.begin() + PackedDigitBytes(n, base));
  std::vector<uint8_t> digits(n), again(packed.size());
  if (!UnpackDigits(packed.data(), n, base, digits.data())) return;
  FUZZ_CHECK(std::ranges::all_of(digits, [&](uint8_t d) { return d < base; }));
  FUZZ_CHECK(PackDigits(digits.data(), n, base, again.data()) && again == packed);
}

void TryRoundTrip(std::span<const uint8_t> in, int base) {
  std::vector<uint8_t> digits(in.begin(), in.end());
  const bool fit = std::ranges::all_of(digits, [&](uint8_t d) { return d < base; });
  std::vector<uint8_t> packed(PackedDigitBytes(digits.size(), base));
  FUZZ_CHECK(PackDigits(digits.data(), digits.size(), base, packed.data()) == fit);
  for (uint8_t& d : digits) d = static_cast<uint8_t>(d % base);
  FUZZ_CHECK(PackDigits(digits.data(), digits.size(), base, packed.data()));
  std::vector<uint8_t> back(digits.size());
  FUZZ_CHECK(UnpackDigits(packed.data(), digits.size(), base, back.data()) && back == digits);
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kBases[] = {2,  3,  4,  5,  6,  7,  8,  9,   10, 11,
                            12, 13, 14, 15, 16, 32, 64, 128, 256};
  if (size < 2) return 0;
  const int base = kBases[data[0] % std::size(kBases)];
  const std::span<const uint8_t> rest(data + 2, size - 2);
  elastiquant::TryUnpack(rest, data[1], base);
  elastiquant::TryRoundTrip(rest, base);
  return 0;
}
