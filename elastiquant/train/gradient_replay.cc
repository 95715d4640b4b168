#include "elastiquant/train/gradient_replay.h"

#include <ATen/ops/from_file.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <string>

#include "elastiquant/base/npy_front.h"
#include "elastiquant/c10d/torch_error.h"
#include "elastiquant/train/gradient_dump.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

// Returns the bytes of a file that begins with `front` and holds so many values.
Result<at::Tensor> Map(const fs::path& path, const std::string& front, size_t elements) try {
  const size_t bytes = front.size() + elements * sizeof(float);
  std::error_code error;
  if (fs::file_size(path, error) == bytes && !error) {
    // Not "shared", which libtorch opens for writing: pages that nobody writes to are shared.
    at::Tensor file =
        at::from_file(path.string(), /*shared=*/false, static_cast<int64_t>(bytes), at::kByte);
    if (std::memcmp(file.const_data_ptr(), front.data(), front.size()) == 0) return file;
  }
  if (error) return IoError("cannot open " + path.string() + ": " + error.message());
  return InvalidArgument(path.string() + " does not hold " + std::to_string(elements) +
                         " values, as the model has: it is of another model");
} catch (const c10::Error& error) {
  return IoError("cannot open " + path.string() + ": " + Words(error));
}

}  // namespace

Result<std::unique_ptr<GradientReplay>> GradientReplay::Open(
    const fs::path& folder, std::span<const ParameterShape> shapes) {
  auto replay = std::make_unique<GradientReplay>();
  size_t total = 0;
  for (const ParameterShape& shape : shapes) {
    replay->offsets_.push_back(total);
    replay->elements_.push_back(shape.elements);
    total += shape.elements;
  }
  const std::vector<fs::path> paths = GradientFilesIn(folder);
  if (paths.empty()) {
    return NotFound(folder.string() +
                    " has no gradients: `elastiquant train --dump-gradients " +
                    "1,2 --out OUT` with the same --model writes some to OUT/gradients");
  }
  const std::string front = NpyFront(total);
  replay->front_ = front.size();
  for (const fs::path& path : paths) {
    EQ_ASSIGN_OR_RETURN(at::Tensor file, Map(path, front, total));
    replay->files_.push_back(std::move(file));
  }
  return replay;
}

void GradientReplay::Fill(uint64_t index, const PlannedBucket& bucket,
                          std::span<float> values) const {
  const uint8_t* gradient = files_[index % files_.size()].const_data_ptr<uint8_t>() + front_;
  for (const BucketSlot& slot : bucket.slots) {
    std::memcpy(values.data() + slot.offset,
                gradient + offsets_[slot.parameter] * sizeof(float),
                elements_[slot.parameter] * sizeof(float));
  }
}

}  // namespace elastiquant
