// Decodes frames of chunks.
#pragma once

#include "elastiquant/codec/registry.h"

namespace elastiquant {

Status DecodeChunks(const FrameView& frame, const DecodeSink& sink, Workspace& work);

}  // namespace elastiquant
