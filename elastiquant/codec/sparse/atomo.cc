// ATOMO (Wang et al., NeurIPS 2018) with the coordinates as atoms: each is kept with a
// probability p_i and sent as v_i / p_i, where the p_i, of a given sum s, have the least
// variance sum of v_i^2 (1/p_i - 1). They are min(1, |v_i| / t) for the t that gives the sum:
// all that may be dropped are sent as +-t, so a sign is enough for them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "elastiquant/codec/sparse/sparse_codec.h"
#include "elastiquant/codec/sparse/sparse_values.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/sparse/select.h"

namespace elastiquant {
namespace {

constexpr float kLeastFloat = std::numeric_limits<float>::denorm_min();
constexpr size_t kTile = size_t{1} << 16;

// The coordinates of which |v| < t, added up, and the number of the others.
struct Division {
  double below = 0;
  size_t at_least = 0;
};
Division Divide(std::span<const float> values, float t, Workspace& work) {
  const size_t n = values.size(), tiles = (n + kTile - 1) / kTile;
  const std::span<uint8_t> scratch =
      work.SharedScratch(Workspace::kCodecSlot, tiles * sizeof(Division));
  auto* parts = reinterpret_cast<Division*>(scratch.data());
  const auto tile = [&](size_t i, int) {
    const size_t first = i * kTile, count = std::min(kTile, n - first);
    const float* v = values.data() + first;
    parts[i] = {SumAbsBelow(v, count, t),
                CountMagnitudes(v, count, std::bit_cast<uint32_t>(t))};
  };
  work.ParallelFor(tiles, std::cref(tile));
  Division sum;
  for (size_t i = 0; i < tiles; ++i) {
    sum.below += parts[i].below;
    sum.at_least += parts[i].at_least;
  }
  return sum;
}

// To the nearest, but upwards among denormals, where the nearest may be so much below that far
// more than s coordinates would be kept.
float RoundedMagnitude(double t) {
  const auto nearest = static_cast<float>(t);
  const bool is_below = static_cast<double>(nearest) < t;
  if (!is_below || nearest >= std::numeric_limits<float>::min()) return nearest;
  return std::nextafter(nearest, 1.0F);
}

// Water-filling: t falls as the coordinates above it stop sharing in the sum, of which each
// takes 1. Any t > 0 is unbiased, so rounding it does no harm. 0 if none need be dropped.
double Magnitude(std::span<const float> values, size_t s, Workspace& work) {
  Division division = Divide(values, std::numeric_limits<float>::infinity(), work);
  if (division.below == 0) return 0;
  double t = division.below / static_cast<double>(s);
  for (size_t certain = 0;;) {
    const float rounded = RoundedMagnitude(t);
    division = Divide(values, rounded, work);
    if (division.below == 0) return 0;
    if (division.at_least <= certain || division.at_least >= s) return rounded;
    certain = division.at_least;
    t = division.below / static_cast<double>(s - certain);
  }
}

class AtomoCodec : public SparseCodec {
 public:
  AtomoCodec(const KeptCount& count, int bits)
      : SparseCodec({.bits = bits, .stochastic = true, .marked = true}), count_(count) {}

  std::string spec() const override {
    return "atomo:" + count_.Text() + ",bits=" + std::to_string(bits());
  }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }

  // No more than with all p_i = s/n; t and the p_i are rounded.
  std::optional<double> NmseBound(size_t n) const override {
    if (n == 0) return 0;
    const double q = static_cast<double>(n) / static_cast<double>(count_.Of(n));
    return q * (1 + 0x1p-20) - 1 + SparseValueError(n, bits());
  }

 protected:
  // The number is s on average. By Chernoff's bound it is larger than this in fewer than one of
  // 10^12 messages, which are then drawn again.
  size_t MaxKept(size_t n) const override {
    const size_t s = count_.Of(n);
    const auto deviation = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(s))));
    return std::min(n, s + 8 * deviation + 16);
  }
  Result<SparseMessage> Select(std::span<const float> values, StreamKey key,
                               Workspace& work) const override {
    const size_t n = values.size();
    EQ_RETURN_IF_ERROR(CheckFinite(values, work));
    const double magnitude = Magnitude(values, count_.Of(n), work);
    if (magnitude > std::numeric_limits<float>::max()) {
      return OutOfRange("the magnitude to send, " + std::to_string(magnitude) +
                        ", exceeds the largest float; scale the gradient down");
    }
    SparseMessage message;
    message.magnitude = static_cast<float>(magnitude);
    if (magnitude == 0) {
      EQ_ASSIGN_OR_RETURN(message.kept, SelectAtLeast(values, kLeastFloat, work));
      return message;
    }
    do {
      EQ_ASSIGN_OR_RETURN(message.kept,
                          SelectLikely(values, message.magnitude, MakeLaneKeys(key), work));
      key.value = Mix64(key.value + 1);
    } while (message.kept.positions.size() > MaxKept(n));
    return message;
  }

 private:
  const KeptCount count_;
};

Result<std::shared_ptr<const Codec>> MakeAtomo(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const KeptCount count, KeptCount::Parse(spec.codec));
  EQ_ASSIGN_OR_RETURN(const int bits, ParseSparseBits(spec.codec));
  return {std::make_shared<AtomoCodec>(count, bits)};
}

}  // namespace

const CodecFamily& AtomoFamily() {
  static const CodecFamily family = [] {
    std::vector<CodecParameter> parameters = KeptCount::Parameters();
    for (CodecParameter& parameter : parameters) parameter.help += ", on average";
    parameters.push_back(SparseBitsParameter());
    return CodecFamily{CodecId::kSparse,
                       {"atomo",
                        "atomo:ratio=0.01",
                        CodecClass::kUnbiased,
                        "ATOMO of coordinates: the unbiased sparsifier of the least variance",
                        parameters,
                        {}},
                       {"atomo:ratio=0.01", "atomo:k=20,bits=32", "atomo:ratio=0.3,bits=8",
                        "atomo:ratio=1,bits=16", "atomo:ratio=0.1,bits=4"},
                       MakeAtomo,
                       DecodeSparse};
  }();
  return family;
}

}  // namespace elastiquant
