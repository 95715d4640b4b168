#include "elastiquant/data/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace elastiquant {
namespace {

// The source pixels that make one target pixel, with weights that sum to 1.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;
};

// Taps of each target pixel along one axis: `begin` and `length` of the box, `size` of the
// image.
std::vector<Taps> MakeTaps(double begin, double length, int64_t size, int64_t side) {
  const double scale = length / static_cast<double>(side);
  const double reach = std::max(1.0, scale);
  std::vector<Taps> all(static_cast<size_t>(side));
  for (int64_t i = 0; i < side; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre - reach)), 0, size - 1);
    const auto last =
        std::clamp<int64_t>(static_cast<int64_t>(std::ceil(centre + reach)), first + 1, size);
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    float sum = 0;
    for (int64_t x = first; x < last; ++x) {
      const double distance = std::fabs(static_cast<double>(x) + 0.5 - centre) / reach;
      taps.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
      sum += taps.weights.back();
    }
    for (float& weight : taps.weights) weight /= sum;
  }
  return all;
}

}  // namespace

void CropAndResize(const RgbImage& image, const Box& box, int64_t side, std::span<float> out) {
  const auto columns = MakeTaps(box.left, box.width, image.width, side);
  const auto rows = MakeTaps(box.top, box.height, image.height, side);
  const int64_t top = rows.front().first;
  const int64_t bottom = rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  const auto row_floats = static_cast<size_t>(side) * 3;

  // Along x first, for the rows that will be needed.
  std::vector<float> narrow(static_cast<size_t>(bottom - top) * row_floats, 0.0f);
  for (int64_t y = top; y < bottom; ++y) {
    float* target = narrow.data() + static_cast<size_t>(y - top) * row_floats;
    for (const Taps& taps : columns) {
      const uint8_t* source = image.pixels.data() + (y * image.width + taps.first) * 3;
      for (const float weight : taps.weights) {
        for (int c = 0; c < 3; ++c) target[c] += weight * static_cast<float>(*source++);
      }
      target += 3;
    }
  }
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t y = 0; y < static_cast<size_t>(side); ++y) {
    float* target = out.data() + y * row_floats;
    const float* source = narrow.data() + static_cast<size_t>(rows[y].first - top) * row_floats;
    for (const float weight : rows[y].weights) {
      for (size_t i = 0; i < row_floats; ++i) target[i] += weight * source[i];
      source += row_floats;
    }
  }
}

}  // namespace elastiquant
