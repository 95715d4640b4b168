#include "elastiquant/data/cifar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/data/byte_images.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCifarSide = 32;
constexpr size_t kCifarPixels = 3 * kCifarSide * kCifarSide;
constexpr size_t kCifar10Record = 1 + kCifarPixels;
constexpr size_t kCifar100Record = 2 + kCifarPixels;
constexpr size_t kCifar10FileRecords = 10000;

// Adds the file's records: label bytes, of which the last counts, then the pixels.
Status AddRecords(const fs::path& path, size_t record, size_t classes, MappedFile file,
                  ByteImageSet* set, std::vector<ByteImage>* images) {
  const auto bytes = file.bytes();
  for (size_t start = 0; start < bytes.size(); start += record) {
    const uint8_t* pixels = bytes.data() + start + record - kCifarPixels;
    const uint8_t label = pixels[-1];
    if (label >= classes) {
      return CorruptData(path.string() + ": record " + std::to_string(start / record) +
                         " has label " + std::to_string(label) + ", expected 0 to " +
                         std::to_string(classes - 1));
    }
    images->push_back({pixels, label});
  }
  set->files.push_back(std::move(file));
  return Status::Ok();
}

DatasetInfo Describe(const fs::path& directory, std::string format, int64_t classes) {
  DatasetInfo info;
  info.name = directory.string();
  info.format = std::move(format);
  info.classes = classes;
  info.channels = 3;
  info.image_size = kCifarSide;
  return info;
}

// Published means and deviations of the training pixels.
constexpr ChannelStatistics kCifar10Statistics{{0.4914f, 0.4822f, 0.4465f},
                                               {0.2470f, 0.2435f, 0.2616f}};
constexpr ChannelStatistics kCifar100Statistics{{0.5071f, 0.4865f, 0.4409f},
                                                {0.2673f, 0.2564f, 0.2762f}};

bool WholeRecords(const MappedFile& file, size_t record) {
  return !file.bytes().empty() && file.bytes().size() % record == 0;
}

// The record size that divides both files; CIFAR-100's is tried first.
Result<size_t> RecordSize(const fs::path& directory, const MappedFile& train,
                          const MappedFile& test) {
  for (const size_t record : {kCifar100Record, kCifar10Record}) {
    if (WholeRecords(train, record) && WholeRecords(test, record)) return record;
  }
  // Blame the file that fits neither, else the test file: the shorter download.
  const bool train_fits =
      WholeRecords(train, kCifar100Record) || WholeRecords(train, kCifar10Record);
  const MappedFile& wrong = train_fits ? test : train;
  return CorruptData((directory / (train_fits ? "test.bin" : "train.bin")).string() + " has " +
                     std::to_string(wrong.bytes().size()) +
                     " bytes, expected a multiple of 3074 (CIFAR-100: " +
                     (train_fits ? "30740000" : "153700000") +
                     ") or, in both files, of 3073 (one label byte and 3x32x32 pixels)");
}

}  // namespace

Result<std::shared_ptr<const Dataset>> OpenCifar10(const fs::path& directory) {
  constexpr size_t kSize = kCifar10FileRecords * kCifar10Record;
  ByteImageSet set;
  set.statistics = kCifar10Statistics;
  for (int number = 1; number <= 6; ++number) {
    const bool test = number == 6;
    const fs::path path =
        directory / (test ? "test_batch.bin" : "data_batch_" + std::to_string(number) + ".bin");
    EQ_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    if (file.bytes().size() != kSize) {
      return CorruptData(path.string() + " has " + std::to_string(file.bytes().size()) +
                         " bytes, expected " + std::to_string(kSize) +
                         "; unpack or download it again");
    }
    EQ_RETURN_IF_ERROR(AddRecords(path, kCifar10Record, 10, std::move(file), &set,
                                  test ? &set.test : &set.train));
  }
  return MakeByteImageDataset(Describe(directory, "cifar10", 10), std::move(set));
}

Result<std::shared_ptr<const Dataset>> OpenTrainTestBin(const fs::path& directory) {
  EQ_ASSIGN_OR_RETURN(MappedFile train, MappedFile::Open(directory / "train.bin"));
  EQ_ASSIGN_OR_RETURN(MappedFile test, MappedFile::Open(directory / "test.bin"));
  EQ_ASSIGN_OR_RETURN(const size_t record, RecordSize(directory, train, test));
  const bool cifar100 = record == kCifar100Record;
  ByteImageSet set;
  EQ_RETURN_IF_ERROR(AddRecords(directory / "train.bin", record, cifar100 ? 100 : 256,
                                std::move(train), &set, &set.train));
  const auto largest = std::max_element(
      set.train.begin(), set.train.end(),
      [](const ByteImage& a, const ByteImage& b) { return a.label < b.label; });
  const size_t classes = cifar100 ? 100 : std::max<size_t>(2, largest->label + size_t{1});
  EQ_RETURN_IF_ERROR(
      AddRecords(directory / "test.bin", record, classes, std::move(test), &set, &set.test));
  set.statistics = cifar100 ? kCifar100Statistics
                            : MeasureStatistics(set.train, 3, kCifarSide * kCifarSide, true);
  return MakeByteImageDataset(
      Describe(directory, cifar100 ? "cifar100" : "cifar10", static_cast<int64_t>(classes)),
      std::move(set));
}

}  // namespace elastiquant
