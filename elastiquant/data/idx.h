// Opens the MNIST family in idx files (http://yann.lecun.com/exdb/mnist), plain or gzipped.
#pragma once

#include <filesystem>
#include <memory>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Opens train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or with .gz. The images have one channel, are square, and
// are normalised by the training pixels' own mean and deviation. Augmentation shifts by up to 2
// pixels; it never flips, since a mirrored digit is none.
Result<std::shared_ptr<const Dataset>> OpenIdx(const std::filesystem::path& directory);

}  // namespace elastiquant
