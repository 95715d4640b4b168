#include "elastiquant/data/jpeg.h"

// jpeglib.h uses FILE and size_t without declaring them.
#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
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

// The parts that may jump out. Nothing here has a destructor, since longjmp runs none;
// `pixels` belongs to the caller.
bool Decode(std::span<const uint8_t> bytes, int eighths, bool header_only, ErrorTrap* trap,
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
  info.scale_num = static_cast<unsigned>(eighths);
  info.scale_denom = 8;
  jpeg_calc_output_dimensions(&info);
  image->width = info.output_width;
  image->height = info.output_height;
  if (header_only) {
    jpeg_destroy_decompress(&info);
    return true;
  }
  const size_t row = size_t{info.output_width} * (cmyk ? 4 : 3);
  image->pixels.resize(row * info.output_height);
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

Status DecodeFile(const std::filesystem::path& path, int eighths, bool header_only,
                  RgbImage* image) {
  EQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ErrorTrap trap;
  if (!Decode(file.bytes(), eighths, header_only, &trap, image)) {
    return CorruptData(path.string() + " cannot be decoded: " + trap.message + " (file of " +
                       std::to_string(file.bytes().size()) + " bytes)");
  }
  return Status::Ok();
}

}  // namespace

Result<JpegSize> ReadJpegSize(const std::filesystem::path& path) {
  RgbImage image;
  EQ_RETURN_IF_ERROR(DecodeFile(path, 8, true, &image));
  return JpegSize{image.width, image.height};
}

Result<RgbImage> DecodeJpeg(const std::filesystem::path& path, int eighths) {
  RgbImage image;
  EQ_RETURN_IF_ERROR(DecodeFile(path, eighths, false, &image));
  CmykToRgb(&image);
  return image;
}

}  // namespace elastiquant
