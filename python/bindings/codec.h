// elastiquant.Codec, and elastiquant.codecs().
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "elastiquant/codec/codec.h"

namespace elastiquant::python {

using CodecPtr = std::shared_ptr<const Codec>;

// A key as Codec.encode() takes it: None, a number, or a tuple of four.
StreamKey KeyOf(const pybind11::object& key);

// A tensor of several dimensions is one matrix to codecs that care for shapes.
Result<CodecPtr> ForShape(const CodecPtr& codec, at::IntArrayRef shape);

void BindCodec(pybind11::module_& module);

}  // namespace elastiquant::python
