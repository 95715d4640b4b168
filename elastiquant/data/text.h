// Text for language models: bytes from files, or a generated language.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Opens "generated-text" (generated_text.h), a file, or a folder, whose files are read one
// after the other in the order of their paths, without hidden ones; of files the last tenth is
// the test split. A sample has options.context bytes, and the one that comes next; samples
// follow each other without a gap, and augmentation moves those for training by a random part
// of one. Fails with NotFound for what is not there, and with InvalidArgument if a split has no
// sample, or for more than a GiB.
Result<std::shared_ptr<const Dataset>> OpenText(std::string_view source,
                                                const DatasetOptions& options);

}  // namespace elastiquant
