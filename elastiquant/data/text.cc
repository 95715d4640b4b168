#include "elastiquant/data/text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "elastiquant/data/generated_text.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kTestPart = 10;  // one in so many bytes

Status Append(const fs::path& file, std::string* text) {
  std::ifstream in(file, std::ios::binary);
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (!in || error) return NotFound("cannot read " + file.string());
  if (size > kMostBytes - text->size()) {
    return InvalidArgument("more than a GiB of text: give " + file.parent_path().string() +
                           " in parts");
  }
  text->append(std::istreambuf_iterator<char>(in), {});
  return {};
}

Result<std::vector<fs::path>> FilesOf(const fs::path& source) {
  std::error_code error;
  if (fs::is_regular_file(source, error)) return std::vector<fs::path>{source};
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator entry(source, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file()) files.push_back(entry->path());
  }
  if (error || files.empty()) {
    return NotFound("there is no text in " + source.string() +
                    "; give a file, a folder of files, or \"generated-text\"");
  }
  std::ranges::sort(files);
  return files;
}

class Text final : public Dataset {
 public:
  Text(DatasetInfo info, std::array<std::string, 2> splits)
      : Dataset(std::move(info)), splits_(std::move(splits)) {}

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                            std::span<float> out) const override {
    const std::string& text = splits_[split == Split::kTrain ? 0 : 1];
    const auto context = static_cast<size_t>(info().context);
    size_t begin = static_cast<size_t>(index) * context;
    if (augment != nullptr) {
      const uint64_t bits = RandomBits(MakeLaneKeys(*augment), 0);
      begin += bits * std::min(context, text.size() - out.size() - begin + 1) >> 32;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(static_cast<uint8_t>(text[begin + i]));
    }
    return 0;
  }
  Result<int64_t> ReadLabel(Split, int64_t) const override {
    return Unsupported("text has no labels");
  }

 private:
  const std::array<std::string, 2> splits_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> OpenText(std::string_view source,
                                                const DatasetOptions& options) {
  std::array<std::string, 2> splits;
  if (source == "generated-text") {
    EQ_ASSIGN_OR_RETURN(splits[0], GenerateText(options, Split::kTrain));
    EQ_ASSIGN_OR_RETURN(splits[1], GenerateText(options, Split::kTest));
  } else {
    EQ_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesOf(fs::path(source)));
    for (const fs::path& file : files) EQ_RETURN_IF_ERROR(Append(file, &splits[0]));
    const size_t tested = splits[0].size() / kTestPart;
    splits[1] = splits[0].substr(splits[0].size() - tested);
    splits[0].resize(splits[0].size() - tested);
  }
  DatasetInfo info{.name = std::string(source),
                   .format = "text",
                   .classes = 256,
                   .channels = 1,
                   .image_size = 1,
                   .context = options.context};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const auto bytes = static_cast<int64_t>(splits[split == Split::kTrain ? 0 : 1].size());
    const int64_t samples = (bytes - 1) / options.context;
    (split == Split::kTrain ? info.train_size : info.test_size) = samples;
    if (samples > 0) continue;
    return InvalidArgument(std::string(source) + " has " + std::to_string(bytes) +
                           " bytes for " + (split == Split::kTrain ? "training" : "testing") +
                           ", and one sample needs " + std::to_string(options.context + 1));
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<Text>(std::move(info), std::move(splits)));
}

}  // namespace elastiquant
