// One worker of an algorithm whose workers reuse what they have sent before: in a step, only
// those send whose gradient has changed enough; the others send a header. It has no thread,
// clock or socket: a driver tells it of gradients and messages, and does what it says.
//
// There is no server. Every message goes to all workers, who all keep the sum of what each
// worker m has sent last, Q_m, and move by its mean. With g_m the gradient of worker m at the
// weights w_k of step k, rate a, and weights ^w_m of its last upload, worker m is silent if it
// was so in fewer than `most_silent` steps in a row, and
//   LAG-WK  |g_m - Q_m|^2                    <= T
//   LAG-PS  L_m^2 |^w_m - w_k|^2             <= T
//   LAQ     |Q_m' - Q_m|^2                   <= T + 3 (|e_m'|^2 + |e_m|^2)
//   LASG    |g_m(w_k; s) - g_m(^w_m; s)|^2   <= T
//   T = (1 / a^2) sum over d = 1 .. D of xi |w_(k+1-d) - w_(k-d)|^2.
// Q_m' = Q_m + decoded(encode(g_m - Q_m)) is what it would have sent, e_m' = g_m - Q_m' what
// that loses, and e_m what the last upload lost. s is the minibatch of step k.
//
// LAG is of Chen, Giannakis, Sun and Yin, "LAG: Lazily Aggregated Gradient for
// Communication-Efficient Distributed Learning", NeurIPS 2018, (15a) and (15b). LAQ is of Sun,
// Chen, Giannakis and Yang, "Communication-Efficient Distributed Learning via Lazily Aggregated
// Quantized Gradients", NeurIPS 2019, (7). LASG is the rule WK2 of Chen, Sun and Yin, "LASG:
// Lazily Aggregated Stochastic Gradients for Communication-Efficient Distributed Learning",
// 2020, with c / d_max written as xi / a^2: both gradients see the same samples, so that their
// noise cancels where the others take it for news. They minimise the sum of the workers'
// losses, and this the mean: their 1 / (alpha^2 M^2) is the 1 / a^2 here. Each difference is
// divided by the rate of its own step, which is the published rule at a constant rate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

enum class LazyRule : uint8_t { kLagWk, kLagPs, kLaq, kLasg };

struct LazyOptions {
  LazyRule rule = LazyRule::kLagWk;
  int rank = 0;
  int world_size = 1;
  size_t elements = 0;         // of a gradient, at least 1
  std::string codec = "fp32";  // of innovations; one that remembers nothing
  uint64_t seed = 0;           // of the codec's random numbers, the same on all workers
  int threads = 1;             // the codec's

  int64_t history = 10;       // D, at least 1
  double weight = .1;         // xi of each difference, at least 0
  int64_t most_silent = 100;  // silent steps in a row, at least 0
  // L_m of LAG-PS. 0: the largest |g_m(w) - g_m(v)| / |w - v| that was seen between two uploads
  // of this worker, which are both forced until there is one. Minibatch noise makes it large.
  double smoothness = 0;
};

// What the driver tells of a step. The spans have `elements` values, in the same order.
struct LazyStep {
  std::span<const float> gradient = {};
  // The weights w_k, for rules that needs_weights().
  std::span<const float> weights = {};
  // The gradient of the same samples at last_weights(), if wants_reference().
  std::span<const float> reference = {};
  // Two numbers of which all workers get the mean, such as the loss.
  float loss = 0;
  float accuracy = 0;
};

// What came of a step, when all workers' messages are in.
struct LazyApply {
  bool skipped = false;         // some worker had no finite gradient: nothing has changed
  std::string reason;           // in words, if skipped
  std::span<const float> mean;  // of all Q_m; valid until the next call that is not const
  float loss = 0, accuracy = 0;
};

class Lazy {
 public:
  // What every message begins with: all that a silent worker sends.
  static constexpr size_t kHeaderBytes = 24;

  // Fails with InvalidArgument for options out of range, and as MakeCodec does.
  static Result<Lazy> Make(const LazyOptions& options);

  // The step whose gradient and messages are expected, from 0. StartAt may be called before
  // the first gradient.
  uint64_t step() const { return step_; }
  void StartAt(uint64_t step) { step_ = step; }

  bool needs_weights() const {
    return options_.rule == LazyRule::kLagPs || options_.rule == LazyRule::kLasg;
  }
  // Whether the rule needs the gradient at the weights of the last upload.
  bool wants_reference() const { return options_.rule == LazyRule::kLasg && has_sent_; }
  std::span<const float> last_weights() const { return last_weights_; }
  size_t MaxMessageBytes() const;

  // Returns the message that the driver must deliver to all workers, this one included: valid
  // until the next call. Must be called once in each step. What it sends counts once the step
  // is applied. Fails with InvalidArgument if a span has a wrong size.
  Result<std::span<const uint8_t>> OnGradient(const LazyStep& step);

  // Takes a message, in any order: those of the next step may come before this step's last, and
  // this worker's own must come after OnGradient. Returns what to do, once all messages of the
  // step are in; the step is then done. Fails with CorruptData, and has changed nothing, for
  // bytes that are no such message of that worker and step, or are its second one. If a frame
  // does not decode when all are in, that worker's message is forgotten as well.
  Result<std::optional<LazyApply>> OnMessage(int from, std::span<const uint8_t> bytes);

  // After the weights have moved by the mean: |w_(k+1) - w_k|^2, and the rate, which momentum
  // makes 1 / (1 - momentum) times as large. A step that was skipped must not be told of.
  void OnMoved(double squared_difference, double learning_rate);

  uint64_t uploads() const { return uploads_; }           // of this worker, since Make
  std::span<const double> sum() const { return sum_; }    // of all Q_m
  std::span<const double> sent() const { return sent_; }  // this worker's Q_m

  // All that must be saved between two steps for the worker to go on exactly. Load fails with
  // CorruptData for damaged bytes, and with InvalidArgument for those of another worker, rule,
  // codec or size; it has changed nothing then.
  std::vector<uint8_t> Save() const;
  Status Load(std::span<const uint8_t> bytes);

 private:
  enum class Kind : uint8_t { kSilent = 0, kUpload = 1, kNoGradient = 2 };
  struct Header {
    Kind kind = Kind::kSilent;
    uint64_t step = 0;
    float loss = 0, accuracy = 0;
  };

  Lazy(const LazyOptions& options, std::shared_ptr<const Codec> codec);

  Status CheckStep(const LazyStep& step) const;
  StreamKey KeyOf(uint64_t step, int worker) const;
  Result<bool> Encode(std::span<const float> gradient);
  double Threshold() const;
  bool IsForced() const;
  bool IsSilent(const LazyStep& step) const;
  Status LoadFields(std::span<const uint8_t> bytes);
  std::span<const uint8_t> Write(const Header& header);
  Result<Header> Read(int from, std::span<const uint8_t> bytes) const;
  Status CheckFrame(int from, uint64_t step, std::span<const uint8_t> frame) const;
  bool IsComplete() const;
  Status AddUploads();
  void CommitOwn();
  Result<LazyApply> Finish();

  LazyOptions options_;
  std::shared_ptr<const Codec> codec_;
  std::unique_ptr<Workspace> work_;

  // What is remembered. Sums are doubles, so that they stay those of what was sent last,
  // however many innovations have been added up.
  uint64_t step_ = 0;
  bool has_sent_ = false;
  int64_t silent_ = 0;         // steps in a row
  double last_error_ = 0;      // |e_m|^2
  double smoothness_ = 0;      // L_m
  std::vector<double> moves_;  // |difference|^2 / rate^2, the newest first, at most D
  std::vector<double> sum_;
  std::vector<double> sent_;
  std::vector<float> last_weights_;  // if needs_weights()

  // Of the step under way.
  bool has_gradient_ = false;
  bool pending_upload_ = false;
  double innovation_ = 0;      // |g_m - Q_m|^2
  double pending_error_ = 0;   // |e_m'|^2
  double pending_change_ = 0;  // |Q_m' - Q_m|^2
  size_t frame_bytes_ = 0;
  std::vector<uint8_t> message_;
  std::vector<float> decoded_, own_, weights_, mean_;
  std::vector<double> next_sum_;
  std::vector<std::vector<uint8_t>> inbox_[2];  // by worker: of this step, and of the next

  uint64_t uploads_ = 0;
};

}  // namespace elastiquant
