// Cuts a box out of a picture and brings it to another size.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/data/jpeg.h"

namespace elastiquant {

// A part of an image, in its pixels. Edges may lie between pixels.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// Writes the box, brought to side x side pixels, as values 0 ... 255 in [y][x][channel] order.
// It is bilinear where it enlarges; where it shrinks, the triangle filter is as wide as the
// shrinking asks, so that nothing aliases. The box must lie within the image.
void CropAndResize(const RgbImage& image, const Box& box, int64_t side, std::span<float> out);

}  // namespace elastiquant
