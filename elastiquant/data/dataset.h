// Labelled images, or text, from files or from a formula, with one interface whatever the
// format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

enum class Split { kTrain, kTest };

struct DatasetInfo {
  std::string name;        // "generated", or the directory it was read from
  std::string format;      // "generated", "cifar10", "cifar100", "idx", "jpeg" or "text"
  int64_t classes = 0;     // labels are 0 ... classes - 1
  int64_t channels = 0;    // 1 or 3
  int64_t image_size = 0;  // images are square, this many pixels on a side
  int64_t train_size = 0;  // samples in each split
  int64_t test_size = 0;
  int64_t context = 0;  // of text: bytes of a sample, beside the one that comes next

  int64_t size(Split split) const { return split == Split::kTrain ? train_size : test_size; }
  int64_t floats_per_sample() const {
    return context > 0 ? context + 1 : channels * image_size * image_size;
  }
};

// A data set. It is immutable once open: Read may be called from many threads at a time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  const DatasetInfo& info() const { return info_; }

  // Writes sample `index` to `out`: info().floats_per_sample() values, of an image in the order
  // [y][x][channel] (channels last) and normalised per channel, of text the bytes. Returns its
  // label, or 0 for text, which has no labels. With an `augment` key it applies the usual
  // random augmentation of the format, which is a function of the key alone; without one it
  // applies none. Fails with CorruptData, which names the file that cannot be decoded, with
  // OutOfRange for an index outside the split, and with InvalidArgument if `out` has another
  // size.
  Result<int64_t> Read(Split split, int64_t index, const StreamKey* augment,
                       std::span<float> out) const;

  // Whether Pixels and Prepare work: images of one size that are stored as bytes.
  virtual bool has_pixels() const { return false; }
  // Writes the stored image to `out`: info().floats_per_sample() bytes in the order
  // [y][x][channel]. Returns its label. Fails as Read does, and with Unsupported if
  // has_pixels() is false.
  Result<int64_t> Pixels(Split split, int64_t index, std::span<uint8_t> out) const;
  // Does to an image of that form what Read does to a stored one: augments and normalises it.
  Status Prepare(std::span<const uint8_t> pixels, const StreamKey* augment,
                 std::span<float> out) const;

  // Returns the label of one sample, or of all of a split, without decoding images. Fails with
  // Unsupported for text, which has none, and with OutOfRange for an index outside the split.
  Result<int64_t> Label(Split split, int64_t index) const;
  Result<std::vector<int64_t>> Labels(Split split) const;

 protected:
  explicit Dataset(DatasetInfo info) : info_(std::move(info)) {}
  virtual Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                                    std::span<float> out) const = 0;
  virtual Result<int64_t> ReadLabel(Split split, int64_t index) const = 0;
  virtual Result<int64_t> ReadPixels(Split split, int64_t index, std::span<uint8_t> out) const;
  virtual Status PrepareImage(std::span<const uint8_t> pixels, const StreamKey* augment,
                              std::span<float> out) const;

 private:
  Status CheckIndex(Split split, int64_t index) const;
  Status CheckPixels(size_t size) const;

  DatasetInfo info_;
};

struct DatasetOptions {
  uint64_t seed = 0;       // of the generated set; files do not depend on it
  int64_t image_size = 0;  // of JPEG folders: pixels on a side, 0 means the format's default
  int64_t generated_train = 10000;  // samples of the generated set
  int64_t generated_test = 2000;
  int64_t context = 0;  // bytes that a language model takes at once; 0: images are wanted
};

// Opens "generated", or a directory whose format is told by the files in it:
//   data_batch_1.bin ... data_batch_5.bin, test_batch.bin  CIFAR-10, official binary layout
//   train.bin, test.bin                                    CIFAR-100, or CIFAR-10 records
//   train-images-idx3-ubyte[.gz] and its three companions  the MNIST family
//   train/<class>/*.jpg with test/ or val/ beside it       JPEG folders
// If options.context is set, opens text (text.h).
// Fails with NotFound for a missing directory or file, and with CorruptData for a file of the
// wrong size (the message gives the path, the size expected and the size found).
Result<std::shared_ptr<const Dataset>> OpenDataset(std::string_view source,
                                                   const DatasetOptions& options);

}  // namespace elastiquant
