// The decoder of the elastic codec.
#pragma once

#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Decodes the payload of a frame after checking parameters, sizes, norms and codes.
Status DecodeElastic(const FrameView& frame, const DecodeSink& sink, Workspace& work);

}  // namespace elastiquant
