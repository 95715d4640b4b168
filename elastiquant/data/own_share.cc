#include "elastiquant/data/own_share.h"

#include <string>
#include <utility>
#include <vector>

namespace elastiquant {
namespace {

class OwnShare final : public Dataset {
 public:
  OwnShare(std::shared_ptr<const Dataset> dataset, std::vector<bool> mine)
      : Dataset(dataset->info()), dataset_(std::move(dataset)), mine_(std::move(mine)) {}
  bool has_pixels() const override { return dataset_->has_pixels(); }

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                            std::span<float> out) const override {
    EQ_RETURN_IF_ERROR(Check(split, index));
    return dataset_->Read(split, index, augment, out);
  }
  Result<int64_t> ReadLabel(Split split, int64_t index) const override {
    EQ_RETURN_IF_ERROR(Check(split, index));
    return dataset_->Label(split, index);
  }
  Result<int64_t> ReadPixels(Split split, int64_t index,
                             std::span<uint8_t> out) const override {
    EQ_RETURN_IF_ERROR(Check(split, index));
    return dataset_->Pixels(split, index, out);
  }
  Status PrepareImage(std::span<const uint8_t> pixels, const StreamKey* augment,
                      std::span<float> out) const override {
    return dataset_->Prepare(pixels, augment, out);
  }

 private:
  Status Check(Split split, int64_t index) const {
    if (split == Split::kTest || mine_[static_cast<size_t>(index)]) return Status::Ok();
    return OutOfRange("training sample " + std::to_string(index) +
                      " is not in this worker's share");
  }

  const std::shared_ptr<const Dataset> dataset_;
  const std::vector<bool> mine_;  // by sample of the training split
};

}  // namespace

Result<std::shared_ptr<const Dataset>> OwnShareOf(std::shared_ptr<const Dataset> dataset,
                                                  std::span<const int64_t> samples) {
  const int64_t size = dataset->info().train_size;
  std::vector<bool> mine(static_cast<size_t>(size));
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= size) {
      return InvalidArgument("a share has the sample " + std::to_string(sample) +
                             ", and the training set has " + std::to_string(size));
    }
    mine[static_cast<size_t>(sample)] = true;
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<OwnShare>(std::move(dataset), std::move(mine)));
}

}  // namespace elastiquant
