// Gradients that an earlier run has written (gradient_dump.h), in place of those of a backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

class GradientReplay {
 public:
  // Opens all gradients of a folder. They are read as they are needed, and workers on one
  // machine share what is read. Fails with NotFound if there is none, with InvalidArgument if
  // they are not of a model with these parameters, and with IoError if one cannot be read.
  static Result<std::unique_ptr<GradientReplay>> Open(const std::filesystem::path& folder,
                                                      std::span<const ParameterShape> shapes);

  size_t gradients() const { return files_.size(); }
  // Copies the bucket's part of gradient `index`, modulo their number.
  void Fill(uint64_t index, const PlannedBucket& bucket, std::span<float> values) const;

 private:
  std::vector<at::Tensor> files_;  // their bytes, which libtorch maps into memory
  size_t front_ = 0;               // bytes before the values
  std::vector<size_t> offsets_;    // by parameter
  std::vector<size_t> elements_;
};

}  // namespace elastiquant
