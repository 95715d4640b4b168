// Photographs as JPEG files in one folder a class, the way ImageNet is kept.
#pragma once

#include <filesystem>
#include <memory>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// DIR/train/<class>/*.jpg and DIR/test or DIR/val with the same classes; labels number the
// classes in the order of their names. Pixels are normalised by ImageNet's means. Training with
// augmentation: a random box of 8 to 100 % of the area, its sides 3:4 to 4:3, brought to
// options.image_size, mirrored half the time (Szegedy et al. 2015, section 6). Otherwise the
// shorter side is brought to 8/7 of it and the centre cut out. An image size of 0 means 224, or
// the shorter side of the first picture if that is less.
// Errors: NotFound without a test folder or pictures, InvalidArgument for an image size out of
// range, CorruptData if test/ has a class that train/ has not.
Result<std::shared_ptr<const Dataset>> OpenJpegFolder(const std::filesystem::path& directory,
                                                      const DatasetOptions& options);

}  // namespace elastiquant
