#include "elastiquant/data/jpeg.h"

// jpeglib.h uses FILE and size_t without declaring them.
#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "elastiquant/data/mapped_file.h"

namespace elastiquant {
namespace {

// libjpeg reports errors by a function that must not return.
struct ErrorTrap {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void Escape(j_common_ptr info) {
  auto* trap = reinterpret_cast<ErrorTrap*>(info->err);
  info->err->format_message(info, trap->message);
  std::longjmp(trap->escape, 1);
}

// The decoder goes on in grey where a file ends early; training should not.
void OnMessage(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) Escape(info);
}

struct Decoding {
  int eighths = 8;
  bool header_only = false;
  bool smooth = true;  // colours across the borders of squares
  std::optional<JpegSize> expected = {};

  bool Fits(const RgbImage& image) const {
    return !expected || (image.width == expected->width && image.height == expected->height);
  }
};

// The parts that may jump out. An image that is not as expected gets no pixels. Nothing here
// has a destructor, since longjmp runs none; `pixels` belongs to the caller.
bool Decode(std::span<const uint8_t> bytes, const Decoding& how, ErrorTrap* trap,
            RgbImage* image) {
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&trap->base);
  trap->base.error_exit = Escape;
  trap->base.emit_message = OnMessage;
  if (setjmp(trap->escape)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  const bool cmyk = info.num_components == 4;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  info.scale_num = static_cast<unsigned>(how.eighths);
  info.scale_denom = 8;
  jpeg_calc_output_dimensions(&info);
  image->width = info.output_width;
  image->height = info.output_height;
  if (how.header_only || !how.Fits(*image)) {
    jpeg_destroy_decompress(&info);
    return true;
  }
  const size_t row = size_t{info.output_width} * (cmyk ? 4 : 3);
  image->pixels.resize(row * info.output_height);
  info.do_fancy_upsampling = how.smooth ? TRUE : FALSE;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW line = image->pixels.data() + info.output_scanline * row;
    jpeg_read_scanlines(&info, &line, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return true;
}

// Adobe's CMYK is inverted: 255 means no ink.
void CmykToRgb(RgbImage* image) {
  const auto count = static_cast<size_t>(image->width * image->height);
  if (image->pixels.size() != 4 * count) return;
  for (size_t i = 0; i < count; ++i) {
    const unsigned key = image->pixels[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      image->pixels[3 * i + c] = static_cast<uint8_t>(image->pixels[4 * i + c] * key / 255);
    }
  }
  image->pixels.resize(3 * count);
}

Status DecodeBytes(std::span<const uint8_t> bytes, const std::string& name, const Decoding& how,
                   RgbImage* image) {
  ErrorTrap trap;
  if (!Decode(bytes, how, &trap, image)) {
    return CorruptData(name + " cannot be decoded: " + trap.message + " (file of " +
                       std::to_string(bytes.size()) + " bytes)");
  }
  if (how.Fits(*image)) return Status::Ok();
  return CorruptData(name + " has " + std::to_string(image->width) + "x" +
                     std::to_string(image->height) + " pixels, not " +
                     std::to_string(how.expected->width) + "x" +
                     std::to_string(how.expected->height));
}

Status DecodeFile(const std::filesystem::path& path, const Decoding& how, RgbImage* image) {
  EQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return DecodeBytes(file.bytes(), path.string(), how, image);
}

// What jumps out of encoding; it has no destructors either. The memory at *out is libjpeg's.
bool Encode(std::span<const uint8_t> pixels, int64_t width, int64_t channels, int quality,
            ErrorTrap* trap, unsigned char** out, unsigned long* size) {
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&trap->base);
  trap->base.error_exit = Escape;
  if (setjmp(trap->escape)) {
    jpeg_destroy_compress(&info);
    return false;
  }
  const auto row = static_cast<size_t>(width * channels);
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, out, size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(pixels.size() / row);
  info.input_components = static_cast<int>(channels);
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    // The interface lacks a const.
    auto* line = const_cast<JSAMPROW>(pixels.data() + info.next_scanline * row);
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

}  // namespace

Result<JpegSize> ReadJpegSize(const std::filesystem::path& path) {
  RgbImage image;
  EQ_RETURN_IF_ERROR(DecodeFile(path, {.header_only = true}, &image));
  return JpegSize{image.width, image.height};
}

Result<RgbImage> DecodeJpeg(const std::filesystem::path& path, int eighths) {
  RgbImage image;
  EQ_RETURN_IF_ERROR(DecodeFile(path, {.eighths = eighths}, &image));
  CmykToRgb(&image);
  return image;
}

Result<RgbImage> DecodeJpegBytes(std::span<const uint8_t> bytes, const std::string& name,
                                 JpegSize expected) {
  RgbImage image;
  EQ_RETURN_IF_ERROR(DecodeBytes(bytes, name, {.smooth = false, .expected = expected}, &image));
  CmykToRgb(&image);
  return image;
}

Result<std::vector<uint8_t>> EncodeJpeg(std::span<const uint8_t> pixels, int64_t width,
                                        int64_t height, int64_t channels, int quality) {
  const bool good = width >= 1 && height >= 1 && width <= JPEG_MAX_DIMENSION &&
                    height <= JPEG_MAX_DIMENSION && (channels == 1 || channels == 3) &&
                    quality >= 1 && quality <= 100 &&
                    pixels.size() == static_cast<size_t>(width * height * channels);
  if (!good) return InvalidArgument("a JPEG picture has other sizes, or another quality");
  ErrorTrap trap;
  unsigned char* out = nullptr;
  unsigned long size = 0;
  const bool encoded = Encode(pixels, width, channels, quality, &trap, &out, &size);
  std::vector<uint8_t> bytes(out, out + (encoded ? size : 0));
  std::free(out);
  if (!encoded) return Internal(std::string("a JPEG picture was not made: ") + trap.message);
  return bytes;
}

}  // namespace elastiquant
