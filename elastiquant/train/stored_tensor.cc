#include "elastiquant/train/stored_tensor.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <utility>

namespace elastiquant {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kFloat, "F32"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"}, {at::kLong, "I64"}};

std::string DtypeOf(const at::Tensor& tensor) {
  for (const auto& [type, name] : kTypes) {
    if (type == tensor.scalar_type()) return name;
  }
  TORCH_CHECK(false, "no tensor of a model is of type ", tensor.scalar_type());
}

at::ScalarType TypeOf(const std::string& dtype) {
  for (const auto& [type, name] : kTypes) {
    if (name == dtype) return type;
  }
  TORCH_CHECK(false, "no tensor of a model is stored as ", dtype);
}

}  // namespace

std::string DescribeAsStored(const at::Tensor& tensor) {
  return StoredTensor{DtypeOf(tensor), tensor.sizes().vec(), {}}.Describe();
}

StoredTensor ToStored(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "parameters and buffers are contiguous (model.h)");
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  return {DtypeOf(tensor), tensor.sizes().vec(), {bytes, bytes + tensor.nbytes()}};
}

at::Tensor ViewOf(const StoredTensor& stored) {
  // It is only read: at::Tensor has no type for that.
  return at::from_blob(const_cast<uint8_t*>(stored.bytes.data()), stored.shape,
                       at::TensorOptions(TypeOf(stored.dtype)));
}

}  // namespace elastiquant
