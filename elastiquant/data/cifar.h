// Opens CIFAR-10 and CIFAR-100 in their official binary layout (Krizhevsky 2009,
// https://www.cs.toronto.edu/~kriz/cifar.html), and other sets in the same records.
#pragma once

#include <filesystem>
#include <memory>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Opens data_batch_1.bin ... data_batch_5.bin and test_batch.bin, each of which has 10,000
// records of a label byte and 3 * 32 * 32 pixel bytes.
Result<std::shared_ptr<const Dataset>> OpenCifar10(const std::filesystem::path& directory);

// Opens train.bin and test.bin. They have CIFAR-100's records of a coarse label, a fine label
// (the one used) and 3 * 32 * 32 pixels; or, told by the files' sizes, records of CIFAR-10's
// kind with any number of classes.
Result<std::shared_ptr<const Dataset>> OpenTrainTestBin(const std::filesystem::path& directory);

}  // namespace elastiquant
