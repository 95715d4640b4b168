#include "elastiquant/train/gradient_replay.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "elastiquant/base/npy_front.h"

namespace elastiquant {

namespace fs = std::filesystem;

// One that is mapped into memory.
class GradientReplay::File {
 public:
  static Result<std::shared_ptr<File>> Open(const fs::path& path, size_t elements) {
    const std::string front = NpyFront(elements);
    auto file = std::make_shared<File>();
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return IoError("cannot open " + path.string() + ": " + std::strerror(errno));
    struct stat about = {};
    const bool known = fstat(fd, &about) == 0;
    file->size_ = known ? static_cast<size_t>(about.st_size) : 0;
    if (file->size_ == front.size() + elements * sizeof(float)) {
      file->map_ = mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (file->map_ == MAP_FAILED || std::memcmp(file->map_, front.data(), front.size()) != 0) {
      return InvalidArgument(path.string() + " does not hold " + std::to_string(elements) +
                             " values, as the model has: it is of another model");
    }
    file->front_ = front.size();
    return file;
  }

  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (map_ != MAP_FAILED) munmap(map_, size_);
  }

  const uint8_t* values() const { return static_cast<const uint8_t*>(map_) + front_; }

 private:
  void* map_ = MAP_FAILED;
  size_t size_ = 0, front_ = 0;
};

Result<std::unique_ptr<GradientReplay>> GradientReplay::Open(
    const fs::path& folder, std::span<const ParameterShape> shapes) {
  auto replay = std::make_unique<GradientReplay>();
  size_t total = 0;
  for (const ParameterShape& shape : shapes) {
    replay->offsets_.push_back(total);
    replay->elements_.push_back(shape.elements);
    total += shape.elements;
  }
  std::set<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("gradient-") && name.ends_with(".npy")) paths.insert(entry.path());
  }
  if (paths.empty()) {
    return NotFound(folder.string() +
                    " has no gradients: `elastiquant train --dump-gradients " +
                    "1,2 --out OUT` with the same --model writes some to OUT/gradients");
  }
  for (const fs::path& path : paths) {
    EQ_ASSIGN_OR_RETURN(std::shared_ptr<File> file, File::Open(path, total));
    replay->files_.push_back(std::move(file));
  }
  return replay;
}

void GradientReplay::Fill(uint64_t index, const PlannedBucket& bucket,
                          std::span<float> values) const {
  const uint8_t* gradient = files_[index % files_.size()]->values();
  for (const BucketSlot& slot : bucket.slots) {
    std::memcpy(values.data() + slot.offset,
                gradient + offsets_[slot.parameter] * sizeof(float),
                elements_[slot.parameter] * sizeof(float));
  }
}

}  // namespace elastiquant
