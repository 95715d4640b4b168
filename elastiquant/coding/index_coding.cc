#include "elastiquant/coding/index_coding.h"

#include <string>

#include "elastiquant/coding/elias.h"
#include "elastiquant/coding/fixed.h"
#include "elastiquant/coding/rans.h"

namespace elastiquant {
namespace {

Status CheckBits(int bits) {
  if (bits >= 2 && bits <= 8) return Status::Ok();
  return InvalidArgument("index coding: bits is " + std::to_string(bits) + ", not 2 to 8");
}

Status UnknownCoding(IndexCoding coding) {
  return InvalidArgument("index coding " + std::to_string(static_cast<int>(coding)) +
                         " is unknown: use 0 (fixed), 1 (elias) or 2 (rans)");
}

}  // namespace

size_t MaxIndexBytes(IndexCoding coding, size_t n, int bits, size_t runs) {
  switch (coding) {
    case IndexCoding::kFixed:
      return FixedBytes(n, bits);
    case IndexCoding::kElias:
      return MaxEliasBytes(n, bits, runs);
    case IndexCoding::kRans:
      return MaxRansBytes(n, bits);
  }
  return 0;
}

Result<size_t> EncodeIndices(IndexCoding coding, std::span<const uint8_t> codes, int bits,
                             size_t run, std::span<uint8_t> out, const float* soon) {
  EQ_RETURN_IF_ERROR(CheckBits(bits));
  switch (coding) {
    case IndexCoding::kFixed:
      return EncodeFixed(codes, bits, out);
    case IndexCoding::kElias:
      return EncodeElias(codes, bits, run, out);
    case IndexCoding::kRans:
      return EncodeRans(codes, bits, out, soon);
  }
  return UnknownCoding(coding);
}

Status DecodeIndices(IndexCoding coding, std::span<const uint8_t> in, int bits, size_t run,
                     std::span<uint8_t> codes, const float* soon) {
  EQ_RETURN_IF_ERROR(CheckBits(bits));
  switch (coding) {
    case IndexCoding::kFixed:
      return DecodeFixed(in, bits, codes);
    case IndexCoding::kElias:
      return DecodeElias(in, bits, run, codes);
    case IndexCoding::kRans:
      return DecodeRans(in, bits, codes, soon);
  }
  return UnknownCoding(coding);
}

}  // namespace elastiquant
