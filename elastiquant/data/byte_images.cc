#include "elastiquant/data/byte_images.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace elastiquant {
namespace {

// Where an output pixel comes from: x reads column x + dx, or its mirror image.
struct Placement {
  int64_t dx = 0;
  int64_t dy = 0;
  bool mirror = false;
};

Placement DrawPlacement(StreamKey key, int64_t shift, bool may_mirror) {
  const LaneKeys keys = MakeLaneKeys(key);
  const auto span = static_cast<float>(2 * shift + 1);
  auto draw = [&](uint32_t i) {
    return static_cast<int64_t>(UniformFloat(RandomBits(keys, i)) * span) - shift;
  };
  return {draw(0), draw(1), may_mirror && (RandomBits(keys, 2) >> 31) != 0};
}

class ByteImageDataset : public Dataset {
 public:
  ByteImageDataset(DatasetInfo info, ByteImageSet set)
      : Dataset(std::move(info)), set_(std::move(set)) {
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t value = 0; value < 256; ++value) {
        const float unit = static_cast<float>(value) / 255.0f;
        normalised_[channel][value] =
            (unit - set_.statistics.mean[channel]) / set_.statistics.deviation[channel];
      }
    }
  }

  bool has_pixels() const override { return true; }

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                            std::span<float> out) const override {
    const ByteImage& image = ImageOf(split, index);
    Normalise(image.pixels, set_.planar, augment, out.data());
    return image.label;
  }
  Result<int64_t> ReadPixels(Split split, int64_t index,
                             std::span<uint8_t> out) const override {
    const ByteImage& image = ImageOf(split, index);
    const int64_t channels = info().channels;
    const int64_t pixels = info().image_size * info().image_size;
    for (int64_t i = 0; i < pixels * channels; ++i) {
      const int64_t from = set_.planar ? i % channels * pixels + i / channels : i;
      out[static_cast<size_t>(i)] = image.pixels[from];
    }
    return image.label;
  }
  Status PrepareImage(std::span<const uint8_t> pixels, const StreamKey* augment,
                      std::span<float> out) const override {
    Normalise(pixels.data(), /*planar=*/false, augment, out.data());
    return {};
  }
  Result<int64_t> ReadLabel(Split split, int64_t index) const override {
    return ImageOf(split, index).label;
  }

 private:
  const ByteImage& ImageOf(Split split, int64_t index) const {
    return (split == Split::kTrain ? set_.train : set_.test)[static_cast<size_t>(index)];
  }

  void Normalise(const uint8_t* pixels, bool planar, const StreamKey* augment,
                 float* out) const {
    const Placement place =
        augment ? DrawPlacement(*augment, set_.shift, set_.mirror) : Placement{};
    if (info().channels == 1) {
      Copy<1>(pixels, planar, place, out);
    } else {
      Copy<3>(pixels, planar, place, out);
    }
  }

  template <int kChannels>
  void Copy(const uint8_t* pixels, bool planar, const Placement& place, float* out) const {
    const int64_t side = info().image_size;
    const int64_t pixel_step = planar ? 1 : kChannels;
    const int64_t channel_step = planar ? side * side : 1;
    const int64_t step = place.mirror ? -pixel_step : pixel_step;
    // The columns whose source lies in the image; the rest stay 0, the mean colour.
    const int64_t first = std::max<int64_t>(0, -place.dx);
    const int64_t last = std::min(side, side - place.dx);
    std::fill_n(out, side * side * kChannels, 0.0f);
    for (int64_t y = std::max<int64_t>(0, -place.dy); y < std::min(side, side - place.dy);
         ++y) {
      const int64_t column = place.mirror ? side - 1 - first - place.dx : first + place.dx;
      const uint8_t* source = pixels + ((y + place.dy) * side + column) * pixel_step;
      float* target = out + (y * side + first) * kChannels;
      for (int64_t x = first; x < last; ++x, source += step, target += kChannels) {
        for (int channel = 0; channel < kChannels; ++channel) {
          target[channel] = normalised_[channel][source[channel * channel_step]];
        }
      }
    }
  }

  ByteImageSet set_;
  std::array<std::array<float, 256>, 3> normalised_{};
};

}  // namespace

ChannelStatistics MeasureStatistics(std::span<const ByteImage> images, int64_t channels,
                                    int64_t pixels, bool planar) {
  ChannelStatistics statistics;
  const int64_t pixel_step = planar ? 1 : channels;
  const int64_t channel_step = planar ? pixels : 1;
  for (int64_t channel = 0; channel < channels; ++channel) {
    uint64_t sum = 0;
    uint64_t squares = 0;
    for (const ByteImage& image : images) {
      const uint8_t* source = image.pixels + channel * channel_step;
      for (int64_t i = 0; i < pixels; ++i) {
        const uint64_t value = source[i * pixel_step];
        sum += value;
        squares += value * value;
      }
    }
    const double count = static_cast<double>(images.size()) * static_cast<double>(pixels);
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    // Images of a single colour would otherwise be divided by zero.
    const double deviation = std::max(1.0, std::sqrt(std::max(0.0, variance)));
    statistics.mean[static_cast<size_t>(channel)] = static_cast<float>(mean / 255.0);
    statistics.deviation[static_cast<size_t>(channel)] = static_cast<float>(deviation / 255.0);
  }
  return statistics;
}

std::shared_ptr<const Dataset> MakeByteImageDataset(DatasetInfo info, ByteImageSet set) {
  info.train_size = static_cast<int64_t>(set.train.size());
  info.test_size = static_cast<int64_t>(set.test.size());
  return std::make_shared<ByteImageDataset>(std::move(info), std::move(set));
}

}  // namespace elastiquant
