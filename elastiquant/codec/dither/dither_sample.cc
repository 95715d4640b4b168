#include "elastiquant/codec/dither/dither_sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

// The bits that states of rANS hold, cut to eleven digits.
double StateBits(std::span<const uint32_t> states) {
  constexpr size_t kDigits = 10;
  static const auto logarithms = [] {
    std::array<double, size_t{1} << kDigits> table;
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = ExactLog2(static_cast<double>((i << 1) + (2 << kDigits) + 1)) - kDigits - 1;
    }
    return table;
  }();
  double bits = 0;
  for (uint32_t x : states) {
    const int whole = std::bit_width(x) - 1;
    bits +=
        whole + logarithms[x >> (whole - static_cast<int>(kDigits)) & (logarithms.size() - 1)];
  }
  return bits;
}

}  // namespace

DitherSample::DitherSample(std::span<const float> values, std::span<const float> means,
                           std::span<uint8_t> classes, LaneKeys keys, double log2_step)
    : values_(values), means_(means), keys_(keys) {
  const size_t full = values.size() / kDitherBlock;
  DitherClassesFor(means, MakeDitherScale(DitherStep(log2_step)), kNeutralPhase,
                   classes.data());
  CountClasses(classes.first(full));
  double share[kDitherClasses] = {}, total = 0;
  for (int id = 1; id < kDitherClasses; ++id) {
    share[id] = strata_[id].blocks * DitherIndexBits(DitherDensity::kLaplace, kNeutralPhase,
                                                     (id - kDitherUnitClass) / 2.0);
    total += share[id];
  }
  // A few blocks of short messages, whose encoding should not take twice as long.
  const double most = static_cast<double>(std::clamp<size_t>(full / 8, 32, kMost));
  uint32_t next[kDitherClasses], ends[kDitherClasses];
  for (int id = 1; id < kDitherClasses; ++id) {
    Stratum& stratum = strata_[id];
    if (stratum.blocks > 0) {
      stratum.picked = std::clamp<uint32_t>(static_cast<uint32_t>(most * share[id] / total), 1,
                                            stratum.blocks);
    }
    next[id] = static_cast<uint32_t>(count_);
    count_ += stratum.picked;
    ends[id] = static_cast<uint32_t>(count_);
  }
  // Which block of its class is picked next: the middles of as many parts of them.
  uint32_t seen[kDitherClasses] = {}, middles[kDitherClasses];
  const auto set_middle = [&](size_t id) {
    const Stratum& stratum = strata_[id];
    const uint64_t done = next[id] + stratum.picked - ends[id];
    middles[id] = stratum.picked == done
                      ? stratum.blocks  // none any more
                      : static_cast<uint32_t>((2 * done + 1) * stratum.blocks /
                                              (2 * uint64_t{stratum.picked}));
  };
  middles[0] = std::numeric_limits<uint32_t>::max();
  for (size_t id = 1; id < kDitherClasses; ++id) set_middle(id);
  for (size_t b = 0; b < full && count_ > 0; ++b) {
    const size_t id = classes[b];
    if (seen[id]++ != middles[id]) continue;
    picks_[next[id]++] = static_cast<uint32_t>(b);
    set_middle(id);
  }
}

void DitherSample::CountClasses(std::span<const uint8_t> classes) {
  constexpr size_t kParts = 4;  // side by side: one would wait for itself
  uint32_t counts[kParts][kDitherClasses] = {};
  for (size_t b = 0; b < classes.size(); ++b) ++counts[b % kParts][classes[b]];
  for (size_t id = 0; id < kDitherClasses; ++id) {
    for (const auto& part : counts) strata_[id].blocks += part[id];
  }
}

double DitherSample::Bits(DitherDensity density, int phase, float step, uint32_t part) const {
  const DitherModel& model = GetDitherModel(density, phase);
  const DitherScale scale = MakeDitherScale(step);
  DitherWriter writer;
  writer.lanes = kMaxDitherLanes;
  std::fill_n(writer.states, writer.lanes, kRansLow);
  double held = StateBits(writer.states), bits = 0;
  const uint32_t* pick = picks_;
  for (const Stratum& stratum : strata_) {
    if (stratum.picked == 0) continue;
    size_t bytes = 0;
    uint32_t taken = 0;
    for (uint32_t i = std::min(part, stratum.picked) / 2; i < stratum.picked; i += part) {
      const size_t at = pick[i] * kDitherBlock;
      uint8_t id;
      DitherClassesFor(means_.subspan(pick[i], 1), scale, phase, &id);
      uint8_t words[kMaxDitherBlockBytes], rest[kMaxDitherBlockBytes];
      writer.words = words;
      writer.bytes = rest;
      constexpr uint16_t kFirst = 0;
      const float* soon =
          i + part < stratum.picked ? values_.data() + pick[i + part] * kDitherBlock : nullptr;
      EncodeDitherRun(values_.data() + at, {&kFirst, 1, static_cast<uint32_t>(at), soon}, keys_,
                      scale, model, id, &writer);
      bytes +=
          static_cast<size_t>(writer.words - words) + static_cast<size_t>(writer.bytes - rest);
      ++taken;
    }
    pick += stratum.picked;
    const double now = StateBits(writer.states);
    bits += (8 * static_cast<double>(bytes) + now - held) * stratum.blocks / taken;
    held = now;
  }
  return bits;
}

}  // namespace elastiquant
