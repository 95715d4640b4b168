// The codec of what is sent as it is, in fp32.
#pragma once

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Returns the one instance of it.
inline const Codec& Fp32Codec() {
  static const auto codec = MakeCodec("fp32").value();
  return *codec;
}

}  // namespace elastiquant
