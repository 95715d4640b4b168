// Samples as JPEG pictures, and the choice of how samples travel.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/sample_codec.h"

namespace elastiquant {

// All images that are encoded together are one picture, one below the other, so that they share
// its tables. Each is padded to whole squares of 16x16 pixels, of which none is decoded with
// the help of another: what becomes of an image does not depend on its neighbours. 1 <= quality
// <= 100, as libjpeg has it.
std::unique_ptr<SampleCodec> MakeJpegCodec(int quality, ImageShape shape);

// Makes the codec of "pixels[:bits=4,rounding=dither|nearest]" or "jpeg[:quality=50]". Fails
// with InvalidArgument, which lists what is valid. `seed` is as MakePixelCodec has it.
Result<std::unique_ptr<SampleCodec>> MakeSampleCodec(std::string_view spec, ImageShape shape,
                                                     uint64_t seed);

}  // namespace elastiquant
