// Images made by a formula, so that training needs no download.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

inline constexpr int64_t kGeneratedClasses = 10;
inline constexpr int64_t kGeneratedSide = 32;

// Draws sample `index`: 32x32 RGB bytes, [y][x][channel], and returns its label. The label is a
// shape (disc, ring, square, frame, triangle up or down, plus, cross, disc striped across or
// along) whose place, size, tilt, colour and contrast are random, over an uneven background,
// among specks, under noise. Since shapes are lighter or darker than the background alike, no
// linear function of the pixels tells them apart. Only exact arithmetic is used: the bytes are
// the same on every machine.
int64_t DrawGenerated(uint64_t seed, Split split, int64_t index, std::span<uint8_t> pixels);

// Makes the set of `options.generated_train` and `generated_test` such images. Fails with
// InvalidArgument if one of them is not in 1 ... 1,000,000.
Result<std::shared_ptr<const Dataset>> OpenGenerated(const DatasetOptions& options);

}  // namespace elastiquant
