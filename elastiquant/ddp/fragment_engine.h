// The engine behind DiLoCo and local SGD in PyTorch. It averages a model's tensors in fragments
// (layers/fragment_reduction.h) over connections of its own, while training goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/ddp/ddp_stats.h"
#include "elastiquant/ddp/enduring_group.h"
#include "elastiquant/layers/fragment_reduction.h"
#include "elastiquant/layers/state_identity.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Begin and Finish may be called by one thread at a time.
class FragmentEngine {
 public:
  // Destroys the group, for which the worker that hosts the store waits for the others.
  using End = std::function<void(std::unique_ptr<EnduringGroup>)>;

  // Collective. If it goes on, lost workers end nothing from now on: the others average without
  // them, and have the same means. One fragment at a time may be under way then, and the codec
  // must not remember what has to be alike on all workers (Exchange::kFactors). Fails as
  // Communicator::Connect and FragmentReduction::Make do, and with InvalidArgument for such a
  // codec.
  static Result<std::unique_ptr<FragmentEngine>> Create(CommunicatorOptions communicator,
                                                        bool goes_on,
                                                        std::vector<ParameterShape> shapes,
                                                        FragmentOptions options, End end);
  ~FragmentEngine();
  FragmentEngine(const FragmentEngine&) = delete;
  FragmentEngine& operator=(const FragmentEngine&) = delete;

  // Copies the fragment's tensors, in the order of the model, and for fragment 0 the scalars
  // after them, and begins to average them; an engine that goes on begins in Finish. Tensors
  // are dense floats of the host. Fails with InvalidArgument for other sizes, and as
  // FragmentReduction::Begin does.
  Status Begin(size_t fragment, uint64_t round, std::span<const at::Tensor> tensors);
  // Waits for the mean, and writes it to tensors of the same sizes. If the outcome is skipped,
  // some worker had a NaN or infinity, and the tensors are left alone. Fails with Unavailable
  // for a lost worker, unless the engine goes on.
  Result<StepOutcome> Finish(size_t fragment, std::span<const at::Tensor> tensors);

  // By parameter, the spec that it travels under.
  std::vector<std::string> specs() const { return specs_; }
  std::string exchange() const { return exchange_; }
  // Those of all workers that were lost, while this one goes on.
  std::vector<int> lost() const { return group_ ? group_->lost() : std::vector<int>(); }
  DdpStats stats();
  void ResetStats();
  std::vector<nlohmann::json> Layers();

  // What codecs remember, and whose it is ("identity"). Nothing may be under way.
  Result<Sections> SaveState() const;
  // Fails with CorruptData, which names what differs, and for a state that was saved when
  // workers had been lost; nothing has changed then.
  Status LoadState(Sections sections);

  // Ends communication. An error, or what is under way, ends that of all workers.
  void Close(const std::string& farewell, const Status& error);

 private:
  // A fragment's mean that is to come.
  struct Sent {
    uint64_t round = 0;
    std::vector<std::vector<float>> values;  // by tensor
  };

  FragmentEngine(std::vector<ParameterShape> shapes, FragmentOptions options, End end)
      : shapes_(std::move(shapes)), options_(std::move(options)), end_(std::move(end)) {}
  static Status CheckGoesOn(const std::string& codec);
  Status CheckOpen() const;
  Result<std::vector<std::span<float>>> Places(size_t fragment);
  Result<std::vector<std::span<float>>> Places(size_t fragment,
                                               std::span<const at::Tensor> tensors);
  uint64_t ValuesOf(size_t fragment) const;
  EnduringGroup::Ties Ties();
  void LeaveGroup();
  Status JoinGroup(const std::vector<int>& workers);
  Result<StepOutcome> Average(size_t fragment);
  Result<EnduringGroup::Bytes> MakeMean(size_t fragment);
  Result<StepOutcome> TakeMean(size_t fragment, std::span<const uint8_t> bytes);
  StateIdentity Identity() const;

  const std::vector<ParameterShape> shapes_;
  const FragmentOptions options_;
  const End end_;
  int rank_ = 0, world_size_ = 1;  // at the beginning
  std::vector<std::string> specs_;
  std::string exchange_;
  StepCounter counter_;
  Traffic final_traffic_;
  std::vector<nlohmann::json> final_layers_;
  Sections final_memory_;
  // Of an engine that goes on: what is to be averaged; the fragment whose average has begun and
  // not come to its end here; and what its codecs remember if it has at another worker.
  std::optional<Sent> sent_;
  std::optional<size_t> unfinished_;
  std::optional<Sections> if_agreed_;
  // Between two groups.
  Sections memory_;
  nlohmann::json measured_;
  ReducerStats spent_;
  std::unique_ptr<EnduringGroup> group_;
  std::unique_ptr<FragmentReduction> reduction_;  // last: its threads use the rest
};

}  // namespace elastiquant
