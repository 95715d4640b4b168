#include "elastiquant/coding/elias_omega.h"

namespace elastiquant {

bool ReadOmega(BitReader& reader, uint64_t* value) {
  uint64_t k = 1;
  while (reader.Peek(1) == 1) {
    if (k > 32) return false;  // the next group would be wider than kMaxOmegaValue
    const int width = static_cast<int>(k) + 1;
    k = reader.Peek(width);
    reader.Skip(width);
  }
  reader.Skip(1);
  *value = k;
  return k <= kMaxOmegaValue;
}

}  // namespace elastiquant
