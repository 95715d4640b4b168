#include "elastiquant/cli/analyze_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "elastiquant/cli/file.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/message_shape.h"

namespace elastiquant::cli {
namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> FilesOf(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".npy") files.push_back(entry.path().string());
  }
  if (files.empty()) {
    return NotFound(path +
                    " has no .npy files; `elastiquant train --dump-gradients` makes some");
  }
  std::ranges::sort(files);
  return files;
}

Status CheckValues(const AnalyzeInput& input) {
  const size_t n = input.values.size();
  if (n == 0 || n > kMaxFrameElements) {
    return InvalidArgument(fmt::format("{} has {} elements; 1 to {} are needed", input.name, n,
                                       kMaxFrameElements));
  }
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(input.values[i])) continue;
    return NonFinite(fmt::format("{} has {} at coordinate {}", input.name, input.values[i], i));
  }
  return Status::Ok();
}

Result<std::vector<TensorShape>> ReadShapes(const std::string& file, size_t elements) {
  std::vector<TensorShape> shapes;
  if (!fs::exists(file)) return shapes;
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> text, ReadFile(file));
  size_t sum = 0;
  try {
    for (const nlohmann::json& layer : nlohmann::json::parse(text)) {
      shapes.push_back(MatrixShape(layer.at("shape").get<std::vector<size_t>>()));
      sum += shapes.back().rows * shapes.back().cols;
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(file + " is not a list of layers: " + error.what());
  }
  if (sum != elements) {
    return InvalidArgument(
        fmt::format("{} has layers of {} values, but the gradient beside it "
                    "has {}",
                    file, sum, elements));
  }
  return shapes;
}

Result<AnalyzeInput> ReadInput(const std::string& file) {
  EQ_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(file));
  AnalyzeInput input{file, std::move(array.values), {}};
  EQ_RETURN_IF_ERROR(CheckValues(input));
  const std::string layers = (fs::path(file).parent_path() / "layers.json").string();
  EQ_ASSIGN_OR_RETURN(input.shapes, ReadShapes(layers, input.values.size()));
  return input;
}

}  // namespace

Result<std::vector<AnalyzeInput>> ReadAnalyzeInputs(const std::vector<std::string>& paths) {
  std::vector<AnalyzeInput> inputs;
  for (const std::string& path : paths) {
    EQ_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
    for (const std::string& file : files) {
      EQ_ASSIGN_OR_RETURN(inputs.emplace_back(), ReadInput(file));
    }
  }
  return inputs;
}

}  // namespace elastiquant::cli
