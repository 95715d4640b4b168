// What the codecs that send some coordinates only have in common: a selection, and a frame of
// positions and values, whose wire format they share.
#pragma once

#include <optional>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/sparse/sparse_format.h"
#include "elastiquant/codec/sparse/sparse_part.h"
#include "elastiquant/codec/sparse/sparse_write.h"

namespace elastiquant {

// How many coordinates are kept: a part of all, or a number.
class KeptCount {
 public:
  // From the keys "ratio" (of 0.01, unless given) and "k".
  static Result<KeptCount> Parse(const SpecPart& part);
  std::string Text() const;  // "ratio=0.01" or "k=5"
  // Of n: to the nearest, and at least 1 if n is.
  size_t Of(size_t n) const;

  static std::vector<CodecParameter> Parameters();

 private:
  double ratio_ = 0;  // 0: k_ is given
  uint32_t k_ = 0;
};

// From the key "bits": 32, 16, 8 or 4; or, where `exact` may be given, kExactBits.
Result<int> ParseSparseBits(const SpecPart& part, bool exact = false);
std::string SparseBitsText(int bits);
CodecParameter SparseBitsParameter(bool exact = false);
// "yes" or "no".
Result<bool> ParseYesOrNo(const SpecPart& part, std::string_view key,
                          std::string_view fallback);

class SparseCodec : public Codec {
 public:
  size_t MaxFrameBytes(size_t n) const final;
  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const final;
  // A mean of sparse messages is less sparse than each, and would have to be cut down again.
  Exchange exchange() const final {
    return HasSparseParts(form_.bits) ? Exchange::kSparse : Exchange::kAllGather;
  }

 protected:
  struct Form {
    int bits = 16;
    bool stochastic = false;  // values are rounded so that their mean is right
    bool marked = false;      // messages may have signs
    SparsePlacement placement = SparsePlacement::kListed;
  };
  explicit SparseCodec(const Form& form) : form_(form) {}
  int bits() const { return form_.bits; }

  // Of n >= 1 coordinates.
  virtual size_t MaxKept(size_t n) const = 0;
  virtual Result<SparseMessage> Select(std::span<const float> values, StreamKey key,
                                       Workspace& work) const = 0;

 private:
  const Form form_;
};

Status DecodeSparse(const FrameView& frame, const DecodeSink& sink, Workspace& work);

}  // namespace elastiquant
