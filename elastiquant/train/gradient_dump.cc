#include "elastiquant/train/gradient_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "elastiquant/base/npy_front.h"
#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"
#include "elastiquant/runs/file.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr char kLayersFile[] = "layers.json";

Result<int64_t> ParseDumpStep(std::string_view word, int64_t total_steps) {
  const bool per_cent = word.ends_with('%');
  const std::string_view digits = word.substr(0, word.size() - (per_cent ? 1 : 0));
  int64_t value = 0;
  const bool valid =
      ParseNumber(digits, &value) && (per_cent ? value >= 0 && value <= 100 : value >= 1);
  if (!valid) {
    return InvalidArgument(
        fmt::format("--dump-gradients: '{}' is neither a step, counted from 1, nor per cent of "
                    "the run; give a list such as 1,390,50%,100%",
                    word));
  }
  if (per_cent) {
    // total * value / 100, rounded up, without overflow.
    const int64_t rest = total_steps % 100 * value;
    return std::max<int64_t>(1, total_steps / 100 * value + (rest + 99) / 100);
  }
  if (value > total_steps) {
    return InvalidArgument(fmt::format(
        "--dump-gradients: step {} is beyond the run, which has {} steps", value, total_steps));
  }
  return value;
}

}  // namespace

Result<std::set<int64_t>> ParseDumpSteps(std::string_view text, int64_t total_steps) {
  std::set<int64_t> steps;
  for (const std::string_view word : SplitAt(text, ',')) {
    EQ_ASSIGN_OR_RETURN(const int64_t step, ParseDumpStep(word, total_steps));
    steps.insert(step);
  }
  return steps;
}

GradientDump::GradientDump(fs::path folder, std::set<int64_t> steps,
                           const std::vector<NamedTensor>& parameters)
    : folder_(std::move(folder)), steps_(std::move(steps)) {
  size_t offset = 0;
  for (const auto& [name, tensor] : parameters) {
    const auto elements = static_cast<size_t>(tensor.numel());
    layers_.push_back({name, tensor.sizes().vec(), offset, elements});
    offset += elements;
  }
  const std::string front = NpyFront(offset);
  front_bytes_ = front.size();
  bytes_.assign(front.begin(), front.end());
  bytes_.resize(front_bytes_ + offset * sizeof(float));
}

Status GradientDump::WriteLayers() const {
  EQ_RETURN_IF_ERROR(MakeFolder(folder_));
  auto list = nlohmann::ordered_json::array();
  for (const Layer& layer : layers_) {
    list.push_back({{"name", layer.name},
                    {"shape", layer.shape},
                    {"offset", layer.offset},
                    {"elements", layer.elements}});
  }
  const std::string text = list.dump(1) + "\n";
  return WriteFileAtomically(folder_ / kLayersFile,
                             {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void GradientDump::Capture(const PlannedBucket& bucket, std::span<const float> gradient) {
  for (const BucketSlot& slot : bucket.slots) {
    const Layer& layer = layers_[slot.parameter];
    std::memcpy(bytes_.data() + front_bytes_ + layer.offset * sizeof(float),
                gradient.data() + slot.offset, layer.elements * sizeof(float));
  }
}

Status GradientDump::Write(int64_t step) const {
  return WriteFileAtomically(folder_ / fmt::format("gradient-{:06}.npy", step), bytes_);
}

std::vector<fs::path> GradientFilesIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("gradient-") && name.ends_with(".npy")) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

void RemoveGradientDumps(const fs::path& folder) {
  std::error_code ignored;  // no folder; or the new files will say that it cannot be written
  for (const fs::path& path : GradientFilesIn(folder)) fs::remove(path, ignored);
  fs::remove(folder / kLayersFile, ignored);
  fs::remove(folder, ignored);  // unless something else is in it
}

}  // namespace elastiquant
