#include "elastiquant/data/generated.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/data/byte_images.h"

namespace elastiquant {
namespace {

constexpr int kSide = static_cast<int>(kGeneratedSide);
constexpr size_t kBytes = size_t{3} * kSide * kSide;

using Colour = std::array<float, 3>;

// Random numbers of one image, drawn one after the other.
class Draws {
 public:
  explicit Draws(StreamKey key) : keys_(MakeLaneKeys(key)) {}
  uint32_t Bits() { return RandomBits(keys_, counter_++); }
  float Uniform(float low, float high) { return low + (high - low) * UniformFloat(Bits()); }
  float Sign() { return Bits() >> 31 ? 1.0f : -1.0f; }

 private:
  LaneKeys keys_;
  uint32_t counter_ = 0;
};

using Canvas = std::array<Colour, static_cast<size_t>(kSide) * kSide>;

// A colour per corner of a coarse grid, blended in between: an uneven background.
void PaintBackground(const Colour& mean, float unevenness, Draws* draws, Canvas* canvas) {
  constexpr int kCells = 4;
  constexpr int kCell = kSide / kCells;
  std::array<std::array<Colour, kCells + 1>, kCells + 1> grid;
  for (auto& row : grid) {
    for (Colour& colour : row) {
      for (size_t c = 0; c < 3; ++c) {
        colour[c] = mean[c] + draws->Uniform(-unevenness, unevenness);
      }
    }
  }
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const auto& above = grid[static_cast<size_t>(y / kCell)];
      const auto& below = grid[static_cast<size_t>(y / kCell) + 1];
      const auto left = static_cast<size_t>(x / kCell);
      const float u = static_cast<float>(x % kCell) / kCell;
      const float v = static_cast<float>(y % kCell) / kCell;
      for (size_t c = 0; c < 3; ++c) {
        const float top = above[left][c] + u * (above[left + 1][c] - above[left][c]);
        const float bottom = below[left][c] + u * (below[left + 1][c] - below[left][c]);
        (*canvas)[static_cast<size_t>(y * kSide + x)][c] = top + v * (bottom - top);
      }
    }
  }
}

// Lays `colour` over every pixel to the degree that the shape covers it. distance(x, y) is the
// signed distance in pixels from the shape's edge, negative inside; the shape lies within
// `reach` of (cx, cy).
template <typename Distance>
void PaintShape(float cx, float cy, float reach, const Colour& colour, const Distance& distance,
                Canvas* canvas) {
  auto clip = [](float v) { return std::clamp(static_cast<int>(v), 0, kSide - 1); };
  for (int y = clip(cy - reach); y <= clip(cy + reach + 1); ++y) {
    for (int x = clip(cx - reach); x <= clip(cx + reach + 1); ++x) {
      const float d = distance(static_cast<float>(x) - cx, static_cast<float>(y) - cy);
      const float cover = std::clamp(0.5f - d, 0.0f, 1.0f);
      Colour& pixel = (*canvas)[static_cast<size_t>(y * kSide + x)];
      for (size_t c = 0; c < 3; ++c) pixel[c] += cover * (colour[c] - pixel[c]);
    }
  }
}

float Disc(float u, float v, float r) { return std::sqrt(u * u + v * v) - r; }
float Square(float u, float v, float r) { return std::max(std::fabs(u), std::fabs(v)) - r; }
float Triangle(float u, float v, float r) {
  return std::max(v - 0.6f * r, 0.8f * std::fabs(u) - 0.6f * (v + r));
}
float Plus(float u, float v, float r) {
  const float a = std::fabs(u);
  const float b = std::fabs(v);
  return std::min(std::max(a - r, b - 0.3f * r), std::max(b - r, a - 0.3f * r));
}
float Striped(float u, float v, float r) {
  const float period = std::max(3.0f, 0.5f * r);
  const float phase = v / period - std::floor(v / period);
  return std::max(Disc(u, v, r), (std::fabs(phase - 0.5f) - 0.25f) * period);
}

// The signed distance of class `label` of radius r; y grows downwards.
float ClassShape(int64_t label, float u, float v, float r) {
  constexpr float kHalfRoot = 0.70710678f;
  switch (label) {
    case 0:
      return Disc(u, v, r);
    case 1:
      return std::fabs(Disc(u, v, 0.77f * r)) - 0.23f * r;
    case 2:
      return Square(u, v, 0.88f * r);
    case 3:
      return std::fabs(Square(u, v, 0.68f * r)) - 0.2f * r;
    case 4:
      return Triangle(u, v, r);
    case 5:
      return Triangle(u, -v, r);
    case 6:
      return Plus(u, v, r);
    case 7:
      return Plus((u + v) * kHalfRoot, (u - v) * kHalfRoot, r);
    case 8:
      return Striped(u, v, r);
    default:
      return Striped(v, u, r);
  }
}

void PaintSpecks(Draws* draws, Canvas* canvas) {
  const int specks = static_cast<int>(draws->Bits() % 6);
  for (int i = 0; i < specks; ++i) {
    const float x = draws->Uniform(0, kSide);
    const float y = draws->Uniform(0, kSide);
    const float radius = draws->Uniform(0.8f, 2.2f);
    const Colour colour{draws->Uniform(20, 235), draws->Uniform(20, 235),
                        draws->Uniform(20, 235)};
    PaintShape(
        x, y, radius + 1, colour, [radius](float u, float v) { return Disc(u, v, radius); },
        canvas);
  }
}

void PaintObject(int64_t label, const Colour& background, Draws* draws, Canvas* canvas) {
  const float radius = draws->Uniform(4.5f, 10.5f);
  const float x = draws->Uniform(9.5f, 21.5f);
  const float y = draws->Uniform(9.5f, 21.5f);
  const float contrast = draws->Uniform(25, 120);
  Colour colour;
  for (size_t c = 0; c < 3; ++c) {
    colour[c] = background[c] + contrast * draws->Uniform(0.3f, 1.0f);
  }
  // A tilt of up to about 17 degrees, by its tangent.
  const float tangent = draws->Uniform(-0.3f, 0.3f);
  const float cosine = 1.0f / std::sqrt(1.0f + tangent * tangent);
  const float sine = tangent * cosine;
  PaintShape(
      x, y, 1.5f * radius + 1, colour,
      [=](float u, float v) {
        return ClassShape(label, cosine * u + sine * v, cosine * v - sine * u, radius);
      },
      canvas);
}

void QuantiseWithNoise(const Canvas& canvas, float amplitude, Draws* draws,
                       std::span<uint8_t> pixels) {
  for (size_t i = 0; i < canvas.size(); ++i) {
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t bits = draws->Bits();  // two uniforms: their sum has a triangle's density
      const auto sum = static_cast<float>((bits & 0xFFFFu) + (bits >> 16)) * 0x1p-16f - 1.0f;
      const float value = canvas[i][c] + amplitude * sum;
      pixels[3 * i + c] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
    }
  }
}

}  // namespace

int64_t DrawGenerated(uint64_t seed, Split split, int64_t index, std::span<uint8_t> pixels) {
  Draws draws(DeriveKey(seed, split == Split::kTrain ? 0 : 1, static_cast<uint64_t>(index), 0));
  const int64_t label = index % kGeneratedClasses;
  Canvas canvas;
  const Colour background{draws.Uniform(30, 130), draws.Uniform(30, 130),
                          draws.Uniform(30, 130)};
  PaintBackground(background, draws.Uniform(5, 35), &draws, &canvas);
  PaintObject(label, background, &draws, &canvas);
  PaintSpecks(&draws, &canvas);
  QuantiseWithNoise(canvas, draws.Uniform(5, 65), &draws, pixels);
  return label;
}

Result<std::shared_ptr<const Dataset>> OpenGenerated(const DatasetOptions& options) {
  constexpr int64_t kMax = 1000000;
  for (const int64_t size : {options.generated_train, options.generated_test}) {
    if (size < 1 || size > kMax) {
      return InvalidArgument("the generated set has 1 to " + std::to_string(kMax) +
                             " images a split, not " + std::to_string(size));
    }
  }
  ByteImageSet set;
  set.planar = false;
  auto draw = [&](Split split, int64_t size, std::vector<ByteImage>* images) {
    auto& buffer = set.buffers.emplace_back(static_cast<size_t>(size) * kBytes);
    for (int64_t i = 0; i < size; ++i) {
      const auto pixels = std::span(buffer).subspan(static_cast<size_t>(i) * kBytes, kBytes);
      const int64_t label = DrawGenerated(options.seed, split, i, pixels);
      images->push_back({pixels.data(), static_cast<uint16_t>(label)});
    }
  };
  draw(Split::kTrain, options.generated_train, &set.train);
  draw(Split::kTest, options.generated_test, &set.test);
  set.statistics = MeasureStatistics(set.train, 3, kSide * kSide, set.planar);
  DatasetInfo info;
  info.name = "generated";
  info.format = "generated";
  info.classes = kGeneratedClasses;
  info.channels = 3;
  info.image_size = kGeneratedSide;
  return MakeByteImageDataset(std::move(info), std::move(set));
}

}  // namespace elastiquant
