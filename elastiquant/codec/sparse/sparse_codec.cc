#include "elastiquant/codec/sparse/sparse_codec.h"

#include <bit>
#include <cmath>

#include "elastiquant/base/number.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// Rounding must not know of the numbers that chose the coordinates.
LaneKeys RoundingKeys(StreamKey key) { return MakeLaneKeys({Mix64(key.value)}); }

}  // namespace

Result<KeptCount> KeptCount::Parse(const SpecPart& part) {
  const std::string_view k = SpecValue(part, "k", "");
  KeptCount count;
  if (!k.empty()) {
    if (!SpecValue(part, "ratio", "").empty()) {
      return InvalidArgument("codec '" + part.name +
                             "': ratio and k exclude each other; give one of them");
    }
    if (!ParseNumber(k, &count.k_) || count.k_ == 0) {
      return BadKey(part, "k", k, "a whole number from 1 to 4294967295");
    }
    return count;
  }
  const std::string_view ratio = SpecValue(part, "ratio", "0.01");
  if (!ParseNumber(ratio, &count.ratio_) || !(count.ratio_ > 0) || count.ratio_ > 1) {
    return BadKey(part, "ratio", ratio, "a number above 0, up to 1");
  }
  return count;
}

std::string KeptCount::Text() const {
  return ratio_ > 0 ? "ratio=" + NumberText(ratio_) : "k=" + std::to_string(k_);
}

size_t KeptCount::Of(size_t n) const {
  if (ratio_ == 0) return std::min<size_t>(k_, n);
  const auto k = static_cast<size_t>(std::llround(ratio_ * static_cast<double>(n)));
  return std::min(std::max<size_t>(k, 1), n);
}

std::vector<CodecParameter> KeptCount::Parameters() {
  return {{"ratio", "0.01", "above 0, up to 1: kept of all coordinates; at least one is"},
          {"k", "", "the number of coordinates to keep, instead of ratio"}};
}

Result<int> ParseSparseBits(const SpecPart& part, bool exact) {
  const std::string_view text = SpecValue(part, "bits", "16");
  int bits = 0;
  if (ParseNumber(text, &bits) && IsSparseValueWidth(bits)) return bits;
  if (exact && text == "exact") return kExactBits;
  return BadKey(part, "bits", text, exact ? "32, 16, 8, 4 or exact" : "32, 16, 8 or 4");
}
std::string SparseBitsText(int bits) {
  return bits == kExactBits ? "exact" : std::to_string(bits);
}
CodecParameter SparseBitsParameter(bool exact) {
  if (!exact) return {"bits", "16", "32, 16, 8 or 4: of a kept value"};
  return {"bits", "16", "32, 16, 8 or 4: of a kept value; or exact: as 32, but compressed"};
}

Result<bool> ParseYesOrNo(const SpecPart& part, std::string_view key,
                          std::string_view fallback) {
  const std::string_view text = SpecValue(part, key, fallback);
  if (text == "yes" || text == "no") return text == "yes";
  return BadKey(part, key, text, "yes or no");
}

size_t SparseCodec::MaxFrameBytes(size_t n) const {
  return MaxSparseFrameBytes(n, n == 0 ? 0 : MaxKept(n), form_.bits, form_.placement);
}

Result<size_t> SparseCodec::Encode(std::span<const float> values, StreamKey key,
                                   Workspace& work, std::span<uint8_t> frame) const {
  EQ_RETURN_IF_ERROR(
      CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
  SparseMessage message;
  if (!values.empty()) {
    EQ_ASSIGN_OR_RETURN(message, Select(values, key, work));
  }
  // The frame has room for no more.
  if (message.kept.positions.size() > MaxKept(values.size())) {
    return Internal(spec() + " keeps more coordinates than it says: please report this bug");
  }
  const std::span<const float> kept = message.kept.values;
  const float largest = std::bit_cast<float>(AbsMaxBits(kept.data(), kept.size()));
  EQ_ASSIGN_OR_RETURN(const int exponent,
                      SparseExponent(largest, form_.bits, form_.stochastic));
  const SparseRounding rounding{form_.bits, exponent, form_.stochastic, RoundingKeys(key)};
  return WriteSparseFrame(message, values.size(), form_.placement, rounding, key, work, frame);
}

}  // namespace elastiquant
