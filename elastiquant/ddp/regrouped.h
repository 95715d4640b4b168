// Holds a step's gradients in other groups than DDP's buckets. This is for the first step of a
// resumed run, in which DDP does not yet have the buckets of the run that was stopped.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "elastiquant/ddp/ddp_plan.h"

namespace elastiquant {

class Regrouped {
 public:
  // `gradients` are flat tensors of the parameters that `now` lists, one after another. Make
  // copies them into groups as `wanted` lists them. Returns null if `wanted` does not list the
  // same parameters, has an empty group, or puts parameters of different types into one.
  static std::unique_ptr<Regrouped> Make(const DdpLayout& now,
                                         const std::vector<at::Tensor>& gradients,
                                         const DdpLayout& wanted,
                                         std::span<const DdpParameter> parameters);

  const std::vector<at::Tensor>& groups() const { return groups_; }
  // Copies the groups' values back into the gradients' tensors, and returns these.
  std::vector<at::Tensor> Return();

 private:
  struct Piece {
    at::Tensor of_gradient, of_group;
  };

  std::vector<at::Tensor> gradients_, groups_;
  std::vector<Piece> pieces_;
};

}  // namespace elastiquant
