// What the fuzz targets of whole codecs are given: a codec, a key and some floats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/registry.h"
#include "fuzz/fuzz.h"

namespace elastiquant {

struct CodecInput {
  std::shared_ptr<const Codec> codec;
  StreamKey key;
  std::vector<float> values;
};

// The specs that between them take every path of every registered codec and modifier.
inline const std::vector<std::shared_ptr<const Codec>>& FuzzedCodecs() {
  static const auto codecs = [] {
    std::vector<std::shared_ptr<const Codec>> list;
    const auto add = [&](const std::vector<std::string>& variants) {
      for (const std::string& spec : variants) {
        auto made = MakeCodec(spec);
        FUZZ_CHECK(made.ok());
        list.push_back(*made);
      }
    };
    for (const CodecFamily* family : CodecFamilies()) add(family->variants);
    for (const CodecModifier* modifier : CodecModifiers()) add(modifier->variants);
    return list;
  }();
  return codecs;
}

inline constexpr size_t kMaxFuzzedValues = 5000;  // several tiles and segments of most codecs

// Bytes 0 and 1 choose the codec, byte 2 how the rest becomes floats, byte 3 the key.
inline CodecInput ReadCodecInput(const uint8_t* data, size_t size) {
  uint8_t front[4] = {};
  const size_t taken = std::min(size, sizeof(front));
  if (taken > 0) std::memcpy(front, data, taken);
  const std::span<const uint8_t> rest(data + taken, size - taken);
  const auto& codecs = FuzzedCodecs();
  CodecInput input{codecs[(front[0] | front[1] << 8) % codecs.size()], {Mix64(front[3])}, {}};
  std::vector<float>& values = input.values;
  if (front[2] % 4 == 0) {  // as they are: any bits, NaN among them
    values.resize(rest.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), rest.data(), 4 * values.size());
  } else {  // small integers times a power of two: ties, zeros, and nothing that is not finite
    const int exponent = static_cast<int>(front[2] / 4) * 4 - 140;
    for (const uint8_t byte : rest) {
      values.push_back(std::ldexp(static_cast<float>(static_cast<int8_t>(byte)), exponent));
    }
  }
  // Over again, so that a short input makes a long message.
  if (front[2] % 4 == 3 && !values.empty()) {
    for (size_t i = 0; values.size() < kMaxFuzzedValues; ++i) values.push_back(-values[i] / 2);
  }
  values.resize(std::min(values.size(), kMaxFuzzedValues));
  return input;
}

}  // namespace elastiquant
