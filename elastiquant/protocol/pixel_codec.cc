#include <algorithm>
#include <cmath>

#include "elastiquant/base/number.h"
#include "elastiquant/base/random.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/coding/bit_stream.h"
#include "elastiquant/protocol/sample_codec.h"

namespace elastiquant {
namespace {

constexpr size_t kWholeWords = 8;  // that BitWriter needs beyond the bits
constexpr uint64_t kDitherStream = 2;

class PixelCodec final : public SampleCodec {
 public:
  PixelCodec(const PixelCodecOptions& options, ImageShape shape, uint64_t seed)
      : SampleCodec(shape),
        bits_(options.bits),
        // Without loss there is nothing to dither.
        dithered_(options.dithered && options.bits < 8),
        step_(255.0f / static_cast<float>((1 << options.bits) - 1)),
        seed_(seed) {}

  std::string spec() const override {
    return "pixels:bits=" + std::to_string(bits_) +
           ",rounding=" + (dithered_ ? "dither" : "nearest");
  }
  size_t MaxBytes(size_t images) const override {
    return (images * shape().bytes() * static_cast<size_t>(bits_) + 7) / 8;
  }

  Result<std::vector<uint8_t>> Encode(std::span<const uint64_t> ids,
                                      std::span<const uint8_t> images) const override {
    std::vector<uint8_t> bytes(MaxBytes(ids.size()) + kWholeWords);
    BitWriter writer(bytes);
    const size_t size = shape().bytes();
    for (size_t i = 0; i < ids.size(); ++i) {
      const LaneKeys keys = KeysOf(ids[i]);
      for (size_t p = 0; p < size; ++p) {
        writer.Add(CodeOf(images[i * size + p], Dither(keys, p)), bits_);
        writer.Flush();
      }
    }
    size_t used = 0;
    if (!writer.Finish(&used)) return Internal("images need more bytes than MaxBytes says");
    bytes.resize(used);
    return bytes;
  }

  Status Decode(std::span<const uint64_t> ids, std::span<const uint8_t> bytes,
                std::span<uint8_t> images) const override {
    if (bytes.size() != MaxBytes(ids.size())) {
      return CorruptData(std::to_string(ids.size()) + " images under " + spec() + " have " +
                         std::to_string(MaxBytes(ids.size())) + " bytes, not " +
                         std::to_string(bytes.size()));
    }
    BitReader reader(bytes);
    const size_t size = shape().bytes();
    for (size_t i = 0; i < ids.size(); ++i) {
      const LaneKeys keys = KeysOf(ids[i]);
      for (size_t p = 0; p < size; ++p) {
        reader.Reload();
        images[i * size + p] = ValueOf(reader.Peek(bits_), Dither(keys, p));
        reader.Skip(bits_);
      }
    }
    if (!reader.AtFinish()) return CorruptData("after the last image there are bits set");
    return {};
  }

 private:
  LaneKeys KeysOf(uint64_t id) const {
    return MakeLaneKeys(DeriveKey(seed_, id, 0, kDitherStream));
  }
  float Dither(const LaneKeys& keys, size_t pixel) const {
    if (!dithered_) return 0;
    return UniformFloat(RandomBits(keys, static_cast<uint32_t>(pixel))) - .5f;
  }
  uint64_t CodeOf(uint8_t value, float dither) const {
    const float top = static_cast<float>((1 << bits_) - 1);
    const float code = std::floor(static_cast<float>(value) / step_ + dither + .5f);
    return static_cast<uint64_t>(std::clamp(code, 0.0f, top));
  }
  uint8_t ValueOf(uint64_t code, float dither) const {
    const float value = (static_cast<float>(code) - dither) * step_;
    return static_cast<uint8_t>(std::clamp(std::floor(value + .5f), 0.0f, 255.0f));
  }

  const int bits_;
  const bool dithered_;
  const float step_;
  const uint64_t seed_;
};

}  // namespace

Result<PixelCodecOptions> ParsePixelCodec(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(text));
  if (spec.codec.name != "pixels" || !spec.modifiers.empty()) {
    return InvalidArgument("codec '" + std::string(text) + "' is not of pixels");
  }
  PixelCodecOptions options;
  for (const auto& [key, value] : spec.codec.pairs) {
    if (key == "bits") {
      const bool good =
          ParseNumber(value, &options.bits) && options.bits >= 1 && options.bits <= 8;
      if (!good) return BadValueOf("codec 'pixels'", key, value, "1 to 8");
    } else if (key == "rounding") {
      if (value != "dither" && value != "nearest") {
        return BadValueOf("codec 'pixels'", key, value, "dither, nearest");
      }
      options.dithered = value == "dither";
    } else {
      return InvalidArgument("codec 'pixels' has no key '" + key + "'; it has bits, rounding");
    }
  }
  return options;
}

std::unique_ptr<SampleCodec> MakePixelCodec(const PixelCodecOptions& options, ImageShape shape,
                                            uint64_t seed) {
  return std::make_unique<PixelCodec>(options, shape, seed);
}

}  // namespace elastiquant
