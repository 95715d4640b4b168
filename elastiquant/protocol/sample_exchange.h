// What workers tell each other when they send samples in place of gradients: in each step a
// worker names the samples of its batch, and adds those that the others do not have yet, in few
// bits (protocol/sample_codec.h). Whoever has all messages of a step can compute the gradient
// of all samples by itself, so that neither gradients nor the model need to travel.
//
// After Hanna, Ezzeldin, Fragouli and Diggavi, "Quantization of distributed data for learning",
// 2020 (arXiv 2012.07913). That a sample travels only once is ours.
//
// It has no thread, clock or socket: a driver tells it of batches and messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/sample_codec.h"

namespace elastiquant {

struct SampleExchangeOptions {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<const SampleCodec> codec;
  int64_t samples = 0;  // of the training set; ids are 0 to samples - 1
  int64_t classes = 0;  // labels are 0 to classes - 1
  int64_t batch = 0;    // the most samples of a message
  // Whether receivers keep what they have got, as bytes, so that a sample travels once. If not,
  // each message has its samples with it.
  bool cached = true;
};

// A sample of this worker's batch.
struct SampleToSend {
  int64_t id = 0;
  int64_t pass = 0;  // over the samples, which says how it is augmented; it never falls
  // With which chance it is sent, in (0, 1]; what is sent counts for 1 / chance. It travels in
  // kChanceBits bits: ChanceThatTravels says which chance that is.
  double chance = 1;
};

// A sample that came, as it is at the sender too.
struct ReceivedSample {
  int64_t id = 0;
  int64_t pass = 0;
  double weight = 1;  // 1 / chance
  int64_t label = 0;
  std::span<const uint8_t> pixels;
  std::shared_ptr<const uint8_t[]> memory;  // of the pixels, which live as long as it does
};

// What the messages of this worker were made of.
struct SampleTraffic {
  uint64_t named = 0;        // samples that messages named
  uint64_t sent = 0;         // those that travelled with them
  uint64_t pixel_bytes = 0;  // of these
  uint64_t label_bits = 0;   // likewise
  uint64_t number_bits = 0;  // what names samples, passes and chances; headers
};

class SampleExchange {
 public:
  static constexpr size_t kHeaderBytes = 24;
  static constexpr int kChanceBits = 8;

  // Fails with InvalidArgument for options out of range.
  static Result<SampleExchange> Make(const SampleExchangeOptions& options);

  // Returns the chance that a sample which should have `chance`, in (0, 1], must be drawn with:
  // the next higher one that has a code.
  static double ChanceThatTravels(double chance);

  size_t MaxMessageBytes() const;

  // Writes a sample's pixels, and returns its label.
  using ReadSample = std::function<Result<int64_t>(int64_t id, std::span<uint8_t> pixels)>;

  // Returns the message that the driver must deliver to all who compute, this worker included
  // if it does: valid until the next call. Must be called once in each step. Fails with
  // InvalidArgument for samples out of range, and as `read` does: then nothing counts as sent.
  Result<std::span<const uint8_t>> OnBatch(uint64_t step, std::span<const SampleToSend> samples,
                                           const ReadSample& read);

  // Returns the samples of worker `from` in step `step`. Must be called for each message of
  // every step. Fails with CorruptData for bytes that are no such message, or which name
  // samples that never came; what had come before stays as it is.
  Result<std::vector<ReceivedSample>> OnMessage(int from, uint64_t step,
                                                std::span<const uint8_t> message);

  const SampleTraffic& traffic() const { return traffic_; }

 private:
  // A sample as it came.
  struct Kept {
    std::shared_ptr<const uint8_t[]> pixels;  // null: it never came
    int64_t label = 0;
  };
  struct Named {
    ReceivedSample sample;
    bool is_fresh = false;
  };
  struct NamesFormat {
    uint32_t count = 0;
    int64_t first_pass = 0;
    bool has_chances = false;
  };

  explicit SampleExchange(const SampleExchangeOptions& options);
  // The most that names one sample, but for flags and passes.
  size_t bits_of_name() const {
    return static_cast<size_t>(id_bits_) + static_cast<size_t>(label_bits_) + kChanceBits;
  }
  Status CheckBatch(std::span<const SampleToSend> samples) const;
  Status WriteNames(std::span<const SampleToSend> samples, const std::vector<bool>& fresh,
                    std::span<const int64_t> labels, const NamesFormat& format,
                    std::vector<uint8_t>* out);
  std::vector<bool> FreshOnes(std::span<const SampleToSend> samples) const;
  Result<std::vector<Named>> ReadNames(int from, std::span<const uint8_t> bytes,
                                       const NamesFormat& format, size_t* used) const;
  Status TakePixels(int from, std::span<const uint8_t> bytes, std::vector<Named>* named);

  SampleExchangeOptions options_;
  int id_bits_ = 1, label_bits_ = 1;
  std::vector<uint8_t> message_;
  std::vector<bool> sent_;  // by sample
  std::vector<Kept> kept_;  // by sample, of all workers
  SampleTraffic traffic_;
};

}  // namespace elastiquant
