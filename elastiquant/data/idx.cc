#include "elastiquant/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/data/byte_images.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

struct IdxFile {
  fs::path path;  // as found, with .gz if so
  std::vector<uint32_t> dimensions;
  std::vector<uint8_t> values;
};

std::string Complaint(const fs::path& path, const std::string& what) {
  return path.string() + ": " + what;
}

// Reads plain files as they are: zlib tells by the first bytes.
Status ReadExactly(gzFile file, const fs::path& path, std::span<uint8_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const auto ask = static_cast<unsigned>(std::min<size_t>(out.size() - done, 1u << 30));
    const int got = gzread(file, out.data() + done, ask);
    if (got < 0) {
      int code = 0;
      return CorruptData(Complaint(path, gzerror(file, &code)));
    }
    if (got == 0) {
      return CorruptData(Complaint(path, "ends after " + std::to_string(done) + " of " +
                                             std::to_string(out.size()) + " bytes expected" +
                                             "; download it again"));
    }
    done += static_cast<size_t>(got);
  }
  return Status::Ok();
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         bytes[3];
}

Status ParseIdx(gzFile file, size_t dimensions, IdxFile* idx) {
  std::vector<uint8_t> header(4 + 4 * dimensions);
  EQ_RETURN_IF_ERROR(ReadExactly(file, idx->path, header));
  const uint32_t magic = 0x800u + static_cast<uint32_t>(dimensions);
  if (BigEndian(header.data()) != magic) {
    return CorruptData(Complaint(
        idx->path, "starts with " + std::to_string(BigEndian(header.data())) + ", expected " +
                       std::to_string(magic) + ", the idx magic number of bytes in " +
                       std::to_string(dimensions) + " dimension(s)"));
  }
  uint64_t count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    idx->dimensions.push_back(BigEndian(header.data() + 4 + 4 * i));
    count = std::min(count * idx->dimensions.back(), kMaxBytes + 1);
  }
  if (count > kMaxBytes) return CorruptData(Complaint(idx->path, "claims over 4 GiB"));
  idx->values.resize(count);
  EQ_RETURN_IF_ERROR(ReadExactly(file, idx->path, idx->values));
  // Reading on makes zlib verify the checksum at the end.
  uint8_t extra = 0;
  const int got = gzread(file, &extra, 1);
  if (got < 0) {
    int code = 0;
    return CorruptData(Complaint(idx->path, gzerror(file, &code)));
  }
  if (got > 0) {
    return CorruptData(Complaint(idx->path, "has more than the " + std::to_string(count) +
                                                " values that its header tells"));
  }
  return Status::Ok();
}

Result<IdxFile> ReadIdx(const fs::path& plain, size_t dimensions) {
  IdxFile idx;
  std::error_code error;
  idx.path = fs::exists(plain, error) ? plain : fs::path(plain.string() + ".gz");
  if (!fs::exists(idx.path, error)) {
    return NotFound(plain.string() + " is missing, and so is " + idx.path.string());
  }
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(idx.path.c_str(), "rb"),
                                                        gzclose);
  if (!file) return IoError("cannot open " + idx.path.string());
  EQ_RETURN_IF_ERROR(ParseIdx(file.get(), dimensions, &idx));
  return idx;
}

// Reads one split's pair of files; `side` is set by the first and checked by the second.
Status AddSplit(const fs::path& directory, const std::string& prefix, size_t* side,
                ByteImageSet* set, std::vector<ByteImage>* out) {
  EQ_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(directory / (prefix + "-images-idx3-ubyte"), 3));
  EQ_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(directory / (prefix + "-labels-idx1-ubyte"), 1));
  const uint32_t count = images.dimensions[0];
  const uint32_t height = images.dimensions[1];
  if (*side == 0) *side = height;
  if (count == 0 || height == 0 || height != *side || images.dimensions[2] != *side) {
    return CorruptData(Complaint(
        images.path, "has " + std::to_string(count) + " images of " + std::to_string(height) +
                         "x" + std::to_string(images.dimensions[2]) +
                         " pixels, expected at least one, square and as large as the others"));
  }
  if (labels.dimensions[0] != count) {
    return CorruptData(Complaint(labels.path, "has " + std::to_string(labels.dimensions[0]) +
                                                  " labels, expected " + std::to_string(count) +
                                                  " as " + images.path.string() +
                                                  " has images"));
  }
  for (size_t i = 0; i < count; ++i) {
    out->push_back({images.values.data() + i * *side * *side, labels.values[i]});
  }
  set->buffers.push_back(std::move(images.values));  // a moved vector's data stays in place
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const Dataset>> OpenIdx(const fs::path& directory) {
  ByteImageSet set;
  set.mirror = false;
  set.shift = 2;
  size_t side = 0;
  EQ_RETURN_IF_ERROR(AddSplit(directory, "train", &side, &set, &set.train));
  EQ_RETURN_IF_ERROR(AddSplit(directory, "t10k", &side, &set, &set.test));
  uint16_t largest = 1;
  for (const ByteImage& image : set.train) largest = std::max(largest, image.label);
  for (size_t i = 0; i < set.test.size(); ++i) {
    if (set.test[i].label <= largest) continue;
    return CorruptData((directory / "t10k-labels-idx1-ubyte").string() + ": label " +
                       std::to_string(set.test[i].label) + " of test image " +
                       std::to_string(i) + " does not occur in training (0 to " +
                       std::to_string(largest) + ")");
  }
  DatasetInfo info;
  info.name = directory.string();
  info.format = "idx";
  info.classes = largest + 1;
  info.channels = 1;
  info.image_size = static_cast<int64_t>(side);
  set.statistics =
      MeasureStatistics(set.train, 1, static_cast<int64_t>(side * side), set.planar);
  return MakeByteImageDataset(std::move(info), std::move(set));
}

}  // namespace elastiquant
