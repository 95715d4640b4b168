// Opens photographs that are JPEG files in one folder a class, the way ImageNet is kept.
#pragma once

#include <filesystem>
#include <memory>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Opens DIR/train/<class>/*.jpg and DIR/test or DIR/val with the same classes. Labels number
// the classes in the order of their names. Pixels are normalised by ImageNet's means. Training
// with augmentation takes a random box of 8 to 100 % of the area, with sides of 3:4 to 4:3,
// brings it to options.image_size, and mirrors it half the time (Szegedy et al. 2015, section
// 6). Otherwise the shorter side is brought to 8/7 of that size and the centre cut out. An
// image size of 0 means 224, or the shorter side of the first picture if that is less, but at
// least 8. Fails with NotFound without a test folder or pictures, with InvalidArgument for an
// image size that is not 0 or in 8 ... 4096, and with CorruptData if test/ has a class that
// train/ has not.
Result<std::shared_ptr<const Dataset>> OpenJpegFolder(const std::filesystem::path& directory,
                                                      const DatasetOptions& options);

}  // namespace elastiquant
