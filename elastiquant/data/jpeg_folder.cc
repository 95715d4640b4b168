#include "elastiquant/data/jpeg_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/data/jpeg.h"
#include "elastiquant/data/resample.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr std::array<float, 3> kMean{0.485f, 0.456f, 0.406f};
constexpr std::array<float, 3> kDeviation{0.229f, 0.224f, 0.225f};

struct LabelledFile {
  fs::path path;
  int64_t label;
};

Result<std::vector<fs::path>> SortedEntries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error) return IoError("cannot list " + directory.string() + ": " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool IsJpegName(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".jpg" || extension == ".jpeg";
}

Result<std::vector<std::string>> ClassNames(const fs::path& directory) {
  EQ_ASSIGN_OR_RETURN(const auto entries, SortedEntries(directory));
  std::vector<std::string> names;
  for (const fs::path& entry : entries) {
    if (fs::is_directory(entry)) names.push_back(entry.filename().string());
  }
  if (names.size() < 2) {
    return NotFound(directory.string() + " has " + std::to_string(names.size()) +
                    " class folders, expected at least 2");
  }
  return names;
}

Result<std::vector<LabelledFile>> ListPictures(const fs::path& directory,
                                               const std::vector<std::string>& classes) {
  EQ_ASSIGN_OR_RETURN(const auto found, ClassNames(directory));
  std::vector<LabelledFile> files;
  for (const std::string& name : found) {
    const auto place = std::lower_bound(classes.begin(), classes.end(), name);
    if (place == classes.end() || *place != name) {
      return CorruptData((directory / name).string() + " is a class without training pictures");
    }
    EQ_ASSIGN_OR_RETURN(const auto entries, SortedEntries(directory / name));
    for (const fs::path& entry : entries) {
      if (IsJpegName(entry)) files.push_back({entry, place - classes.begin()});
    }
  }
  if (files.empty()) {
    return NotFound(directory.string() + " has no .jpg file in its class folders");
  }
  return files;
}

// The centre square that remains when the shorter side is brought to 8/7 of the image size.
Box CentreBox(const JpegSize& size) {
  const double side = static_cast<double>(std::min(size.width, size.height)) * 7.0 / 8.0;
  return {(static_cast<double>(size.width) - side) / 2,
          (static_cast<double>(size.height) - side) / 2, side, side};
}

// Tries ten random boxes, then settles for the centre, as is usual.
Box RandomBox(const JpegSize& size, LaneKeys keys) {
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  for (uint32_t attempt = 0; attempt < 10; ++attempt) {
    auto uniform = [&](uint32_t i) {
      return static_cast<double>(UniformFloat(RandomBits(keys, 1 + 4 * attempt + i)));
    };
    const double area = width * height * (0.08 + 0.92 * uniform(0));
    const double ratio = std::exp((2.0 * uniform(1) - 1.0) * std::log(4.0 / 3.0));
    const double w = std::max(1.0, std::round(std::sqrt(area * ratio)));
    const double h = std::max(1.0, std::round(std::sqrt(area / ratio)));
    if (w > width || h > height) continue;
    return {std::floor(uniform(2) * (width - w + 1)), std::floor(uniform(3) * (height - h + 1)),
            w, h};
  }
  return CentreBox(size);
}

// The smallest size, in eighths, whose box still has at least `side` pixels each way.
int DecodeEighths(const Box& box, int64_t side) {
  const double ratio = 8.0 * static_cast<double>(side) / std::min(box.width, box.height);
  for (const int eighths : {1, 2, 4}) {
    if (ratio <= eighths) return eighths;
  }
  return 8;
}

void Mirror(int64_t side, std::span<float> image) {
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side / 2; ++x) {
      float* left = image.data() + (y * side + x) * 3;
      std::swap_ranges(left, left + 3, image.data() + (y * side + side - 1 - x) * 3);
    }
  }
}

class JpegFolder : public Dataset {
 public:
  JpegFolder(DatasetInfo info, std::vector<LabelledFile> train, std::vector<LabelledFile> test)
      : Dataset(std::move(info)), train_(std::move(train)), test_(std::move(test)) {}

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                            std::span<float> out) const override {
    const LabelledFile& file = FileOf(split, index);
    const int64_t side = info().image_size;
    EQ_ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(file.path));
    const Box box = augment ? RandomBox(size, MakeLaneKeys(*augment)) : CentreBox(size);
    EQ_ASSIGN_OR_RETURN(const RgbImage image, DecodeJpeg(file.path, DecodeEighths(box, side)));
    const double sx = static_cast<double>(image.width) / static_cast<double>(size.width);
    const double sy = static_cast<double>(image.height) / static_cast<double>(size.height);
    CropAndResize(image, {box.left * sx, box.top * sy, box.width * sx, box.height * sy}, side,
                  out);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = (out[i] / 255.0f - kMean[i % 3]) / kDeviation[i % 3];
    }
    if (augment && RandomBits(MakeLaneKeys(*augment), 0) >> 31) Mirror(side, out);
    return file.label;
  }
  Result<int64_t> ReadLabel(Split split, int64_t index) const override {
    return FileOf(split, index).label;
  }

 private:
  const LabelledFile& FileOf(Split split, int64_t index) const {
    return (split == Split::kTrain ? train_ : test_)[static_cast<size_t>(index)];
  }

  std::vector<LabelledFile> train_;
  std::vector<LabelledFile> test_;
};

Result<int64_t> ChooseSize(int64_t asked, const fs::path& first) {
  if (asked != 0) {
    if (asked >= 8 && asked <= 4096) return asked;
    return InvalidArgument("an image size is 8 to 4096 pixels, not " + std::to_string(asked));
  }
  EQ_ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(first));
  return std::clamp<int64_t>(std::min(size.width, size.height), 8, 224);
}

}  // namespace

Result<std::shared_ptr<const Dataset>> OpenJpegFolder(const fs::path& directory,
                                                      const DatasetOptions& options) {
  std::error_code error;
  const fs::path test_directory =
      directory / (fs::is_directory(directory / "test", error) ? "test" : "val");
  if (!fs::is_directory(test_directory, error)) {
    return NotFound(directory.string() +
                    " has train/ but neither test/ nor val/ with one folder a class");
  }
  EQ_ASSIGN_OR_RETURN(const auto classes, ClassNames(directory / "train"));
  EQ_ASSIGN_OR_RETURN(auto train, ListPictures(directory / "train", classes));
  EQ_ASSIGN_OR_RETURN(auto test, ListPictures(test_directory, classes));
  EQ_ASSIGN_OR_RETURN(const int64_t side, ChooseSize(options.image_size, train.front().path));
  DatasetInfo info;
  info.name = directory.string();
  info.format = "jpeg";
  info.classes = static_cast<int64_t>(classes.size());
  info.channels = 3;
  info.image_size = side;
  info.train_size = static_cast<int64_t>(train.size());
  info.test_size = static_cast<int64_t>(test.size());
  return std::shared_ptr<const Dataset>(
      std::make_shared<JpegFolder>(std::move(info), std::move(train), std::move(test)));
}

}  // namespace elastiquant
