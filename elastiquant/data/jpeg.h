// Decodes JPEG files into RGB pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct RgbImage {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> pixels;  // [y][x][channel]
};

struct JpegSize {
  int64_t width = 0;
  int64_t height = 0;
};

// Reads the header only. Fails as DecodeJpeg does.
Result<JpegSize> ReadJpegSize(const std::filesystem::path& path);

// Decodes grey, colour and CMYK files to RGB, at the given eighths of full size (1 ... 8): the
// decoder shrinks at little cost. Fails with NotFound or IoError if the file cannot be read,
// and with CorruptData and the decoder's words if it is no JPEG file, is damaged, or ends
// early.
Result<RgbImage> DecodeJpeg(const std::filesystem::path& path, int eighths = 8);

}  // namespace elastiquant
