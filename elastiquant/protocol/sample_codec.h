// How images travel when workers send them in place of gradients, in few bits. What a codec
// loses of an image depends on the image and its number alone, so that an image that is sent
// again arrives as the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct ImageShape {
  size_t side = 0;      // images are square, of 1 to kMostSide pixels on a side
  size_t channels = 0;  // 1 or 3

  static constexpr size_t kMostSide = 1024;
  size_t bytes() const { return side * side * channels; }
};

// It is immutable and may be used by many threads at a time.
class SampleCodec {
 public:
  explicit SampleCodec(ImageShape shape) : shape_(shape) {}
  virtual ~SampleCodec() = default;
  SampleCodec(const SampleCodec&) = delete;
  SampleCodec& operator=(const SampleCodec&) = delete;

  const ImageShape& shape() const { return shape_; }
  // Returns the text that makes this codec, with all keys.
  virtual std::string spec() const = 0;
  // Returns the most bytes that so many images may need.
  virtual size_t MaxBytes(size_t images) const = 0;

  // Encodes images that lie one after the other, as bytes in the order [y][x][channel]. `ids`
  // has the number of each, which is that of its random numbers.
  virtual Result<std::vector<uint8_t>> Encode(std::span<const uint64_t> ids,
                                              std::span<const uint8_t> images) const = 0;
  // Fills `images` from what Encode has returned for the same numbers. Fails with CorruptData
  // for other bytes, as far as they can be told apart.
  virtual Status Decode(std::span<const uint64_t> ids, std::span<const uint8_t> bytes,
                        std::span<uint8_t> images) const = 0;

 private:
  const ImageShape shape_;
};

// Values of pixels on the 2^bits levels 0, D, 2 D, ..., 255, where D = 255 / (2^bits - 1),
// which are sent in `bits` bits each.
//
// With rounding=dither, a number u that is uniform in [-1/2, 1/2), and which sender and
// receivers make from the seed, is added before rounding and subtracted after it (Roberts,
// "Picture coding using pseudo-random noise", 1962). The error is then uniform in [-D/2, D/2]
// whatever the image is, but for values within D/2 of 0 and 255: what would lie beyond these is
// set to them, which makes the error smaller and gives it a mean. With rounding=nearest the
// error is as large and depends on the image. Either way it is rounded to a whole value, and
// with 8 bits nothing is lost.
struct PixelCodecOptions {
  int bits = 4;  // 1 to 8
  bool dithered = true;
};

// Parses "pixels[:bits=4,rounding=dither|nearest]". Fails with InvalidArgument, which lists
// what is valid.
Result<PixelCodecOptions> ParsePixelCodec(std::string_view text);

// `seed` is that of the dither, the same on all workers.
std::unique_ptr<SampleCodec> MakePixelCodec(const PixelCodecOptions& options, ImageShape shape,
                                            uint64_t seed);

}  // namespace elastiquant
