#include "elastiquant/ddp/tensor_collectives.h"

#include <algorithm>
#include <optional>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/exchange/skip_notice.h"

namespace elastiquant {
namespace {

// Parts of a tensor, so that one is encoded while another is on its way.
constexpr size_t kPart = size_t{1} << 18;
// Reducers kept for tensors that come again; each has threads and room for frames.
constexpr size_t kKept = 8;

size_t PartOf(const Codec& codec, size_t size) {
  const Exchange exchange = codec.exchange();
  return exchange == Exchange::kTwoPhase || exchange == Exchange::kIntegerSum ? kPart : size;
}

// Random numbers are not those of compress(), which has steps, workers and messages of the same
// numbers and by default the same seed.
uint64_t SeedOf(uint64_t seed) {
  constexpr uint64_t kSalt = 0x74656E736F722E63;  // "tensor.c"
  return Mix64(Mix64(seed) ^ kSalt);
}

// How values are coded.
std::string WayOf(const Codec& codec, uint64_t seed) {
  return codec.spec() + "#" + std::to_string(seed);
}

// Of a call, the number of values and a digest of all else that workers must have alike.
constexpr int kDigestBits = 24;

uint64_t Fingerprint(const char* call, size_t size, const Codec& codec, uint64_t seed) {
  const std::string words = call + WayOf(codec, seed);
  const uint32_t digest =
      Crc32c({reinterpret_cast<const uint8_t*>(words.data()), words.size()});
  return uint64_t{size} << kDigestBits | digest >> (32 - kDigestBits);
}

Status CheckStateless(const Codec& codec) {
  if (codec.StateFields().empty()) return {};
  return InvalidArgument(
      "codec '" + codec.spec() +
      "' remembers from one message to the next, which single tensors cannot: "
      "use compress(), or a codec without memory");
}

// Tells the others what this worker does.
class Busy {
 public:
  Busy(Communicator* comm, const char* doing) : comm_(comm) { comm_->SetActivity(doing); }
  ~Busy() { comm_->SetActivity("between two collective calls"); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator* const comm_;
};

}  // namespace

TensorCollectives::TensorCollectives(std::unique_ptr<Communicator> comm, int threads)
    : comm_(std::move(comm)), threads_(threads), work_(threads) {}

Result<std::unique_ptr<TensorCollectives>> TensorCollectives::Create(
    CommunicatorOptions options, int threads) {
  if (threads < 1) return InvalidArgument("at least one codec thread is needed");
  options.on_peer_lost = [](const Status&) {};  // waits then end with the verdict
  EQ_ASSIGN_OR_RETURN(auto comm, Communicator::Connect(options));
  return std::unique_ptr<TensorCollectives>(new TensorCollectives(std::move(comm), threads));
}

// Workers whose calls differ would wait for each other for ever.
Status TensorCollectives::CheckAlike(uint64_t fingerprint) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> all, comm_->AllGather(fingerprint));
  for (size_t r = 1; r < all.size(); ++r) {
    const uint64_t size = all[r] >> kDigestBits, first = all[0] >> kDigestBits;
    if (all[r] == all[0]) continue;
    return InvalidArgument("workers " + std::to_string(r) + " and 0 make different calls: " +
                           (size == first ? "their codecs, operations or seeds differ"
                                          : "of " + std::to_string(size) + " and " +
                                                std::to_string(first) + " values"));
  }
  return {};
}

Result<TensorCollectives::Reduction*> TensorCollectives::ReductionFor(
    size_t size, const std::shared_ptr<const Codec>& codec, uint64_t seed) {
  const std::pair<size_t, std::string> key{size, WayOf(*codec, seed)};
  if (const auto known = reductions_.find(key); known != reductions_.end()) {
    return &known->second;
  }
  // All workers forget the same one: they make the same calls.
  if (reductions_.size() >= kKept) {
    reductions_.erase(std::ranges::min_element(
        reductions_, {}, [](const auto& entry) { return entry.second.last_used; }));
  }
  Reduction reduction;
  reduction.values.resize(size);
  const size_t part = PartOf(*codec, size);
  EQ_ASSIGN_OR_RETURN(const ExchangeChoice choice,
                      ChooseExchange(codec, nullptr, "auto", comm_->world_size()));
  std::vector<GradientBucket> buckets;
  for (size_t at = 0; at < size; at += part) {
    const size_t n = std::min(part, size - at);
    buckets.push_back({std::span(reduction.values).subspan(at, n), choice.codec,
                       "values from " + std::to_string(at), choice.exchange});
  }
  EQ_ASSIGN_OR_RETURN(reduction.reducer,
                      GradientReducer::Create(comm_.get(), std::move(buckets),
                                              {.seed = SeedOf(seed), .threads = threads_}));
  return &reductions_.emplace(key, std::move(reduction)).first->second;
}

Status TensorCollectives::Mean(std::span<float> values,
                               const std::shared_ptr<const Codec>& codec, uint64_t seed) {
  const Busy busy(comm_.get(), "in all_reduce()");
  EQ_RETURN_IF_ERROR(CheckAlike(Fingerprint("mean ", values.size(), *codec, seed)));
  EQ_RETURN_IF_ERROR(CheckStateless(*codec));
  if (values.empty()) return {};
  EQ_ASSIGN_OR_RETURN(Reduction* const reduction, ReductionFor(values.size(), codec, seed));
  reduction->last_used = ++calls_;
  std::ranges::copy(values, reduction->values.begin());
  EQ_RETURN_IF_ERROR(reduction->reducer->BeginStep(calls_));
  const size_t part = PartOf(*codec, values.size());
  for (size_t b = 0; b * part < values.size(); ++b)
    EQ_RETURN_IF_ERROR(reduction->reducer->MarkReady(b));
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reduction->reducer->Finish());
  if (outcome.skipped) return NonFinite(outcome.reason);
  std::ranges::copy(reduction->values, values.begin());
  return {};
}

// A frame, or a notice of why there is none, for the others wait for either.
Status TensorCollectives::EncodeOrNotice(std::span<const float> values, const Codec& codec,
                                         uint64_t seed, std::vector<uint8_t>* frame) {
  const auto rank = static_cast<uint32_t>(comm_->rank());
  const StreamKey key = DeriveKey(SeedOf(seed), calls_, rank, 0);
  Result<size_t> size = codec.Encode(values, key, work_, *frame);
  const StatusCode code = size.status().code();
  if (code == StatusCode::kNonFinite || code == StatusCode::kOutOfRange) {
    const SkipNotice too_large{0, rank, 0, SkipNotice::Cause::kOutOfRange};
    size = WriteSkipNotice(FindNonFinite(values, 0, 0, rank).value_or(too_large), *frame);
  }
  EQ_RETURN_IF_ERROR(size.status());
  frame->resize(*size);
  return {};
}

Result<std::vector<std::vector<float>>> TensorCollectives::Gather(std::span<const float> values,
                                                                  const Codec& codec,
                                                                  uint64_t seed) {
  const Busy busy(comm_.get(), "in all_gather()");
  EQ_RETURN_IF_ERROR(CheckAlike(Fingerprint("gather ", values.size(), codec, seed)));
  if (values.size() > kMaxFrameElements) {
    return InvalidArgument("all_gather() of " + std::to_string(values.size()) +
                           " values: a frame has " + std::to_string(kMaxFrameElements) +
                           " at most; gather the tensor in parts");
  }
  EQ_RETURN_IF_ERROR(CheckStateless(codec));
  ++calls_;
  const auto world = static_cast<size_t>(comm_->world_size());
  const auto mine = static_cast<size_t>(comm_->rank());
  const size_t room = std::max(codec.MaxFrameBytes(values.size()), kSkipNoticeBytes);
  std::vector<std::unique_ptr<Incoming>> receives(world);
  std::vector<std::unique_ptr<Transfer>> sends;
  for (size_t r = 0; r < world; ++r) {
    if (r != mine) receives[r] = comm_->Receive(static_cast<int>(r), 0, room);
  }
  std::vector<uint8_t> own(room);
  EQ_RETURN_IF_ERROR(EncodeOrNotice(values, codec, seed, &own));
  std::vector<std::span<const uint8_t>> frames(world, own);
  for (size_t r = 0; r < world; ++r) {
    if (r != mine) sends.push_back(comm_->Send(static_cast<int>(r), 0, own));
  }
  for (size_t r = 0; r < world; ++r) {
    if (r == mine) continue;
    EQ_RETURN_IF_ERROR(receives[r]->Wait().status());
    frames[r] = receives[r]->bytes();
  }
  for (auto& send : sends) EQ_RETURN_IF_ERROR(send->Wait().status());

  std::vector<std::vector<float>> all(world, std::vector<float>(values.size()));
  for (size_t r = 0; r < world; ++r) {
    EQ_ASSIGN_OR_RETURN(const std::optional<SkipNotice> notice, ReadSkipNotice(frames[r]));
    if (notice) return NonFinite(Describe(*notice, "the tensor"));
    EQ_RETURN_IF_ERROR(DecodeFrame(frames[r], work_, all[r]));
  }
  return all;
}

}  // namespace elastiquant
