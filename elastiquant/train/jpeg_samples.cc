#include "elastiquant/train/jpeg_samples.h"

#include <algorithm>
#include <string>
#include <vector>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/number.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/data/jpeg.h"

namespace elastiquant {
namespace {

constexpr size_t kSquare = 16;         // pixels that share colours, on a side
constexpr size_t kMostRows = 1 << 15;  // of a picture; JPEG has room for 65500

class JpegCodec final : public SampleCodec {
 public:
  JpegCodec(int quality, ImageShape shape)
      : SampleCodec(shape),
        quality_(quality),
        padded_((shape.side + kSquare - 1) / kSquare * kSquare) {}

  std::string spec() const override { return "jpeg:quality=" + std::to_string(quality_); }

  // A coefficient has at most 27 bits, and its bytes may be stuffed.
  size_t MaxBytes(size_t images) const override {
    constexpr size_t kTables = 4096, kBytesPerValue = 7;
    const size_t pictures = (images + images_per_picture() - 1) / images_per_picture();
    return pictures * kTables + images * padded_ * padded_ * shape().channels * kBytesPerValue;
  }

  // Pictures, each behind its length.
  Result<std::vector<uint8_t>> Encode(std::span<const uint64_t> ids,
                                      std::span<const uint8_t> images) const override {
    std::vector<uint8_t> bytes;
    for (size_t first = 0; first < ids.size(); first += images_per_picture()) {
      const size_t count = std::min(images_per_picture(), ids.size() - first);
      const size_t size = shape().bytes();
      const std::vector<uint8_t> padded = Pad(images.subspan(first * size, count * size));
      EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> picture,
                          EncodeJpeg(padded, static_cast<int64_t>(padded_),
                                     static_cast<int64_t>(padded_ * count),
                                     static_cast<int64_t>(shape().channels), quality_));
      const auto length = static_cast<uint32_t>(picture.size());
      const std::vector<uint8_t> front = BytesOf(std::span(&length, 1));
      bytes.insert(bytes.end(), front.begin(), front.end());
      bytes.insert(bytes.end(), picture.begin(), picture.end());
    }
    return bytes;
  }

  Status Decode(std::span<const uint64_t> ids, std::span<const uint8_t> bytes,
                std::span<uint8_t> images) const override {
    ByteReader reader(bytes);
    for (size_t first = 0; first < ids.size(); first += images_per_picture()) {
      const size_t count = std::min(images_per_picture(), ids.size() - first);
      uint32_t length = 0;
      std::span<const uint8_t> picture;
      if (!reader.Read(&length) || !reader.ReadSpan(length, &picture)) {
        return CorruptData("pictures end early");
      }
      const JpegSize expected{static_cast<int64_t>(padded_),
                              static_cast<int64_t>(padded_ * count)};
      EQ_ASSIGN_OR_RETURN(const RgbImage image,
                          DecodeJpegBytes(picture, "a picture of samples", expected));
      const size_t size = shape().bytes();
      CutOut(image, images.subspan(first * size, count * size));
    }
    if (reader.remaining() == 0) return {};
    return CorruptData("there are bytes after the last picture");
  }

 private:
  size_t images_per_picture() const { return std::max<size_t>(1, kMostRows / padded_); }

  // Repeats the last column and row of each image.
  std::vector<uint8_t> Pad(std::span<const uint8_t> images) const {
    const size_t side = shape().side, channels = shape().channels;
    const size_t count = images.size() / shape().bytes();
    std::vector<uint8_t> padded;
    padded.reserve(count * padded_ * padded_ * channels);
    for (size_t i = 0; i < count; ++i) {
      const auto image = images.subspan(i * shape().bytes(), shape().bytes());
      for (size_t y = 0; y < padded_; ++y) {
        for (size_t x = 0; x < padded_; ++x) {
          const size_t at = std::min(y, side - 1) * side + std::min(x, side - 1);
          const auto pixel = image.subspan(at * channels, channels);
          padded.insert(padded.end(), pixel.begin(), pixel.end());
        }
      }
    }
    return padded;
  }

  // The reverse. A grey picture comes as three equal channels.
  void CutOut(const RgbImage& picture, std::span<uint8_t> images) const {
    const size_t side = shape().side, channels = shape().channels;
    size_t next = 0;
    for (size_t i = 0; i < images.size() / shape().bytes(); ++i) {
      for (size_t y = 0; y < side; ++y) {
        for (size_t x = 0; x < side; ++x) {
          const size_t at = 3 * ((i * padded_ + y) * padded_ + x);
          for (size_t c = 0; c < channels; ++c) images[next++] = picture.pixels[at + c];
        }
      }
    }
  }

  const int quality_;
  const size_t padded_;  // the side of an image in a picture
};

Result<int> ParseQuality(const SpecPart& part) {
  int quality = 50;
  for (const auto& [key, value] : part.pairs) {
    if (key != "quality") {
      return InvalidArgument("codec 'jpeg' has no key '" + key + "'; it has quality");
    }
    const bool good = ParseNumber(value, &quality) && quality >= 1 && quality <= 100;
    if (!good) return BadValueOf("codec 'jpeg'", key, value, "1 to 100");
  }
  return quality;
}

}  // namespace

std::unique_ptr<SampleCodec> MakeJpegCodec(int quality, ImageShape shape) {
  return std::make_unique<JpegCodec>(quality, shape);
}

Result<std::unique_ptr<SampleCodec>> MakeSampleCodec(std::string_view spec, ImageShape shape,
                                                     uint64_t seed) {
  EQ_ASSIGN_OR_RETURN(const Spec parsed, ParseSpec(spec));
  if (parsed.codec.name == "jpeg" && parsed.modifiers.empty()) {
    EQ_ASSIGN_OR_RETURN(const int quality, ParseQuality(parsed.codec));
    return MakeJpegCodec(quality, shape);
  }
  if (parsed.codec.name != "pixels" || !parsed.modifiers.empty()) {
    return InvalidArgument(
        "samples cannot travel as '" + std::string(spec) +
        "'; valid are: jpeg:quality=Q, pixels:bits=B,rounding=dither|nearest");
  }
  EQ_ASSIGN_OR_RETURN(const PixelCodecOptions options, ParsePixelCodec(spec));
  return MakePixelCodec(options, shape, seed);
}

}  // namespace elastiquant
