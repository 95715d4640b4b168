#include "elastiquant/coding/rans_table.h"

#include <algorithm>

#include "elastiquant/coding/elias_omega.h"

namespace elastiquant {
namespace {

// Calls visit(code, code to guess from or -1) in the order of the table.
template <typename Visit>
void VisitCodes(int bits, Visit visit) {
  const int half = 1 << (bits - 1);
  for (int level = 0; level < half; ++level) {
    visit(level, level - 1);
    visit(half + level, level == 0 ? -1 : level);
  }
}

uint32_t ZigZag(int32_t d) { return d < 0 ? 2 * static_cast<uint32_t>(-d) - 1 : 2u * d; }
int64_t UnZigZag(uint64_t z) {
  const int64_t half = static_cast<int64_t>((z + 1) / 2);
  return z % 2 != 0 ? -half : half;
}

}  // namespace

RansFrequencies NormalizeCounts(const uint32_t counts[256]) {
  uint64_t total = 0;
  for (int c = 0; c < 256; ++c) total += counts[c];
  RansFrequencies result{};
  int64_t missing = kRansScale;
  for (int c = 0; c < 256; ++c) {
    if (counts[c] == 0) continue;
    const uint64_t scaled = (uint64_t{counts[c]} * kRansScale + total / 2) / total;
    result.of[c] = static_cast<uint16_t>(std::clamp<uint64_t>(scaled, 1, kRansScale - 1));
    missing -= result.of[c];
  }
  // One by one where it pays most or hurts least. A code costs -log2(f): a change by one is
  // worth about counts / f.
  for (; missing > 0; --missing) {
    int best = -1;
    for (int c = 0; c < 256; ++c) {
      if (counts[c] == 0) continue;
      if (best < 0 ||
          uint64_t{counts[c]} * result.of[best] > uint64_t{counts[best]} * result.of[c]) {
        best = c;
      }
    }
    ++result.of[best];
  }
  for (; missing < 0; ++missing) {
    int best = -1;
    for (int c = 0; c < 256; ++c) {
      if (result.of[c] < 2) continue;
      if (best < 0 || uint64_t{counts[c]} * (result.of[best] - 1u) <
                          uint64_t{counts[best]} * (result.of[c] - 1u)) {
        best = c;
      }
    }
    --result.of[best];
  }
  return result;
}

void WriteRansTable(const RansFrequencies& frequencies, int bits, BitWriter& writer) {
  VisitCodes(bits, [&](int code, int guess_code) {
    const int guess = guess_code < 0 ? 0 : frequencies.of[guess_code];
    const OmegaCode omega = EncodeOmega(1u + ZigZag(frequencies.of[code] - guess));
    writer.Add(omega.bits, omega.length);
    writer.Flush();
  });
}

bool ReadRansTable(BitReader& reader, int bits, RansFrequencies* frequencies) {
  *frequencies = {};
  int64_t missing = kRansScale;
  bool good = true;
  VisitCodes(bits, [&](int code, int guess_code) {
    const int guess = guess_code < 0 ? 0 : frequencies->of[guess_code];
    uint64_t omega = 1;
    reader.Reload();
    good &= ReadOmega(reader, &omega);
    const int64_t frequency = guess + UnZigZag(omega - 1);
    good &= 0 <= frequency && frequency < int64_t{kRansScale};
    if (!good) return;
    frequencies->of[code] = static_cast<uint16_t>(frequency);
    missing -= frequency;
  });
  return good && missing == 0;
}

size_t MaxRansTableBytes(int bits) {
  const int longest = EncodeOmega(1 + 2 * kRansScale).length;
  return ((size_t{1} << bits) * static_cast<size_t>(longest) + 7) / 8;
}

}  // namespace elastiquant
