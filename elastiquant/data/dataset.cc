#include "elastiquant/data/dataset.h"

#include <filesystem>

#include "elastiquant/data/cifar.h"
#include "elastiquant/data/generated.h"
#include "elastiquant/data/idx.h"
#include "elastiquant/data/jpeg_folder.h"
#include "elastiquant/data/text.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Any one of a format's files tells the format, so that the missing others are named.
bool HasAny(const fs::path& directory, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (Exists(directory / name)) return true;
  }
  return false;
}

}  // namespace

Status Dataset::CheckIndex(Split split, int64_t index) const {
  if (index >= 0 && index < info_.size(split)) return Status::Ok();
  return OutOfRange("sample " + std::to_string(index) + " of " +
                    std::to_string(info_.size(split)) + " was asked for");
}

Status Dataset::CheckPixels(size_t size) const {
  if (!has_pixels()) {
    return Unsupported("data of format '" + info_.format + "' are not images stored as bytes " +
                       "of one size");
  }
  if (size == static_cast<size_t>(info_.floats_per_sample())) return Status::Ok();
  return InvalidArgument("an image has " + std::to_string(info_.floats_per_sample()) +
                         " values, not " + std::to_string(size));
}

Result<int64_t> Dataset::Pixels(Split split, int64_t index, std::span<uint8_t> out) const {
  EQ_RETURN_IF_ERROR(CheckIndex(split, index));
  EQ_RETURN_IF_ERROR(CheckPixels(out.size()));
  return ReadPixels(split, index, out);
}

Status Dataset::Prepare(std::span<const uint8_t> pixels, const StreamKey* augment,
                        std::span<float> out) const {
  EQ_RETURN_IF_ERROR(CheckPixels(pixels.size()));
  EQ_RETURN_IF_ERROR(CheckPixels(out.size()));
  return PrepareImage(pixels, augment, out);
}

Result<int64_t> Dataset::ReadPixels(Split /*split*/, int64_t /*index*/,
                                    std::span<uint8_t> /*out*/) const {
  return Internal("a data set that has pixels does not read them");
}

Status Dataset::PrepareImage(std::span<const uint8_t> /*pixels*/, const StreamKey* /*augment*/,
                             std::span<float> /*out*/) const {
  return Internal("a data set that has pixels does not prepare them");
}

Result<int64_t> Dataset::Label(Split split, int64_t index) const {
  EQ_RETURN_IF_ERROR(CheckIndex(split, index));
  return ReadLabel(split, index);
}

Result<std::vector<int64_t>> Dataset::Labels(Split split) const {
  std::vector<int64_t> labels(static_cast<size_t>(info_.size(split)));
  for (size_t i = 0; i < labels.size(); ++i) {
    EQ_ASSIGN_OR_RETURN(labels[i], ReadLabel(split, static_cast<int64_t>(i)));
  }
  return labels;
}

Result<int64_t> Dataset::Read(Split split, int64_t index, const StreamKey* augment,
                              std::span<float> out) const {
  EQ_RETURN_IF_ERROR(CheckIndex(split, index));
  if (static_cast<int64_t>(out.size()) != info_.floats_per_sample()) {
    return InvalidArgument("a sample of this data set takes " +
                           std::to_string(info_.floats_per_sample()) + " floats, not " +
                           std::to_string(out.size()));
  }
  return ReadImage(split, index, augment, out);
}

Result<std::shared_ptr<const Dataset>> OpenDataset(std::string_view source,
                                                   const DatasetOptions& options) {
  if (options.context > 0) {
    if (source != "generated") return OpenText(source, options);
    return InvalidArgument(
        "a language model cannot be trained on the images of \"generated\": give a file or a "
        "folder of text, or \"generated-text\"");
  }
  if (source == "generated-text") {
    return InvalidArgument("\"generated-text\" is for language models (gpt)");
  }
  if (source == "generated") return OpenGenerated(options);
  const fs::path directory(source);
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return NotFound("there is no data directory " + directory.string() +
                    "; give one, or \"generated\", or download one with `elastiquant data "
                    "fetch cifar10 DIR`");
  }
  if (HasAny(directory, {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"})) {
    return OpenCifar10(directory);
  }
  if (HasAny(directory, {"train.bin", "test.bin"})) return OpenTrainTestBin(directory);
  if (HasAny(directory, {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
                         "t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"})) {
    return OpenIdx(directory);
  }
  if (Exists(directory / "train")) return OpenJpegFolder(directory, options);
  return NotFound(directory.string() +
                  " holds no known data set: expected data_batch_1.bin (CIFAR-10), train.bin "
                  "(CIFAR-100), train-images-idx3-ubyte[.gz] (MNIST family) or "
                  "train/<class>/*.jpg");
}

}  // namespace elastiquant
