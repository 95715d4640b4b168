#include "elastiquant/train/loop/initial_weights.h"

#include <c10/core/GradMode.h>

#include <set>

#include "elastiquant/data/md5.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/file.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

// "'fc.weight', 'fc.bias'", and how many more where there are many.
std::string Few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

Status CheckNames(const Safetensors& file, const std::vector<NamedTensor>& state) {
  std::set<std::string> known;
  std::vector<std::string> missing, unknown;
  for (const NamedTensor& t : state) {
    known.insert(t.name);
    if (!file.tensors.contains(t.name)) missing.push_back(t.name);
  }
  for (const auto& [name, unused] : file.tensors) {
    if (!known.contains(name) && !name.starts_with(kOptimizerPrefix)) unknown.push_back(name);
  }
  if (missing.empty() && unknown.empty()) return Status::Ok();
  std::string text = "its tensors are not the model's:";
  if (!missing.empty()) text += " it lacks " + Few(missing);
  if (!unknown.empty()) {
    text += (missing.empty() ? " it has " : ", and has ") + Few(unknown) +
            ", which the model has not";
  }
  return InvalidArgument(text);
}

Status CheckTensor(const std::string& name, const StoredTensor& stored,
                   const at::Tensor& wanted) {
  StoredTensor as_fp32{stored.dtype, stored.shape, {}};
  if (stored.dtype == "F16" || stored.dtype == "BF16") as_fp32.dtype = "F32";
  if (as_fp32.Describe() == DescribeAsStored(wanted)) return Status::Ok();
  return InvalidArgument("'" + name + "' is " + stored.Describe() + ", and the model's is " +
                         DescribeAsStored(wanted) + " (F16 and BF16 would be converted)");
}

Status CopyWeights(const Safetensors& file, const std::vector<NamedTensor>& state) {
  EQ_RETURN_IF_ERROR(CheckNames(file, state));
  for (const NamedTensor& t : state) {
    EQ_RETURN_IF_ERROR(CheckTensor(t.name, file.tensors.at(t.name), t.tensor));
  }
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& t : state) t.tensor.copy_(ViewOf(file.tensors.at(t.name)));
  return Status::Ok();
}

Result<Safetensors> Parse(std::span<const uint8_t> bytes) {
  auto file = ParseSafetensors(bytes);
  return file.ok() && IsCheckpoint(*file) ? ParseCheckpoint(bytes) : std::move(file);
}

}  // namespace

Result<std::string> LoadInitialWeights(const std::string& file,
                                       const std::vector<NamedTensor>& state) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadFile(file));
  EQ_ASSIGN_OR_RETURN(const std::string digest, Md5Of(bytes));
  const auto stored = Parse(bytes);
  const Status status = stored.ok() ? CopyWeights(*stored, state) : stored.status();
  if (!status.ok()) return Status(status.code(), "--init " + file + ": " + status.message());
  return "md5 " + digest;
}

}  // namespace elastiquant
