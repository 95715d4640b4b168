#include "elastiquant/ddp/regrouped.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <utility>

namespace elastiquant {
namespace {

// ATen's copy would bring up a team of threads for the thread that calls it.
void Copy(const at::Tensor& from, const at::Tensor& to) {
  if (from.device().is_cpu()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    to.copy_(from);
  }
}

// Each parameter's part of these tensors. Fails by leaving out what lies past a tensor's end.
std::map<size_t, at::Tensor> PartsOf(const DdpLayout& layout,
                                     const std::vector<at::Tensor>& tensors,
                                     std::span<const DdpParameter> parameters) {
  std::map<size_t, at::Tensor> parts;
  for (size_t d = 0; d < layout.size(); ++d) {
    int64_t position = 0;
    for (const size_t p : layout[d]) {
      const auto size =
          p < parameters.size() ? static_cast<int64_t>(parameters[p].shape.elements) : 0;
      if (p >= parameters.size() || position + size > tensors[d].numel()) break;
      parts[p] = tensors[d].narrow(0, position, size);
      position += size;
    }
  }
  return parts;
}

}  // namespace

std::unique_ptr<Regrouped> Regrouped::Make(const DdpLayout& now,
                                           const std::vector<at::Tensor>& gradients,
                                           const DdpLayout& wanted,
                                           std::span<const DdpParameter> parameters) {
  const std::map<size_t, at::Tensor> parts = PartsOf(now, gradients, parameters);
  auto made = std::make_unique<Regrouped>();
  size_t listed = 0;
  for (const std::vector<size_t>& group : wanted) {
    int64_t size = 0;
    for (const size_t p : group) {
      const auto part = parts.find(p);
      if (part == parts.end()) return nullptr;
      if (!part->second.options().type_equal(parts.at(group[0]).options())) {
        return nullptr;
      }
      size += part->second.numel();
      ++listed;
    }
    if (group.empty()) return nullptr;
    made->groups_.push_back(at::empty({size}, parts.at(group[0]).options()));
  }
  if (listed != parts.size()) return nullptr;
  for (const auto& [p, of_group] : PartsOf(wanted, made->groups_, parameters)) {
    Copy(parts.at(p), of_group);
    made->pieces_.push_back({parts.at(p), of_group});
  }
  made->gradients_ = gradients;
  return made;
}

std::vector<at::Tensor> Regrouped::Return() {
  for (const Piece& piece : pieces_) Copy(piece.of_group, piece.of_gradient);
  pieces_.clear();
  return std::exchange(gradients_, {});
}

}  // namespace elastiquant
