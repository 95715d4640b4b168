// Decodes JPEG files into RGB pixels, and encodes pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
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

// The same of the bytes of a file, which the errors call `name`. Each square of 16x16 pixels is
// decoded by itself: colours are not smoothed across its border, as DecodeJpeg does. Fails with
// CorruptData, too, if the header tells another size than `expected`, before there is room for
// any pixel: a few bytes from the network could claim gigabytes.
Result<RgbImage> DecodeJpegBytes(std::span<const uint8_t> bytes, const std::string& name,
                                 JpegSize expected);

// Encodes pixels that lie as [y][x][channel], where there are 1 or 3 channels, with Huffman
// tables made for them and colours at half the resolution. 1 <= quality <= 100, as libjpeg has
// it; width and height are 1 to 65500.
Result<std::vector<uint8_t>> EncodeJpeg(std::span<const uint8_t> pixels, int64_t width,
                                        int64_t height, int64_t channels, int quality);

}  // namespace elastiquant
