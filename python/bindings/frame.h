// elastiquant.Frame: one encoded tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/untrusted.h"

namespace elastiquant::python {

// Immutable; a copy shares the bytes.
class Frame {
 public:
  // Checks header and checksum, as InspectFrame does.
  static Result<Frame> Of(std::vector<uint8_t> bytes, size_t max_elements);

  std::span<const uint8_t> bytes() const { return *bytes_; }
  const FrameSummary& summary() const { return summary_; }

 private:
  Frame(std::vector<uint8_t> bytes, FrameSummary summary);

  std::shared_ptr<const std::vector<uint8_t>> bytes_;
  FrameSummary summary_;
};

// The calling thread's, of one thread: encoding and decoding run on the threads that call.
Workspace& ThreadsWorkspace();

// What `encode`, given room for `bound` bytes, writes there; it returns their number. The room
// is no vector: the bound can be far above the frame, and pages not touched cost nothing.
template <typename Encode>
Result<Frame> FrameWithin(size_t bound, const Encode& encode) {
  const auto room = std::make_unique_for_overwrite<uint8_t[]>(bound);
  EQ_ASSIGN_OR_RETURN(const size_t bytes, encode(std::span(room.get(), bound)));
  return Frame::Of({room.get(), room.get() + bytes}, kMaxFrameElements);
}

// A Frame as it is, or one made of anything with contiguous bytes that claims at most so many
// values.
Frame FrameOf(pybind11::handle object, size_t max_elements = kDefaultMaxElements);

// The frame's values as a new flat fp32 tensor, or in `out` (a tensor, or None), which is
// returned.
pybind11::object DecodeToTensor(const Frame& frame, const pybind11::object& out);

void BindFrame(pybind11::module_& module);

}  // namespace elastiquant::python
