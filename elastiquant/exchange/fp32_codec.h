// The codec of what is sent as it is.
#pragma once

#include "elastiquant/codec/codec.h"

namespace elastiquant {

inline const Codec& Fp32Codec() {
  static const auto codec = MakeCodec("fp32").value();
  return *codec;
}

}  // namespace elastiquant
