#include "elastiquant/ddp/ddp_engine.h"

#include <ATen/ops/isfinite.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "elastiquant/ddp/engine_ties.h"

namespace elastiquant {
namespace {

// For which the verdict on a lost worker is awaited, beyond the time that one may be silent.
constexpr std::chrono::seconds kBeyondTimeout{2};

std::exception_ptr ToException(const Status& status) {
  const std::string words = "elastiquant: " + status.message();
  try {
    if (status.code() == StatusCode::kUnavailable) C10_THROW_ERROR(DistBackendError, words);
    C10_THROW_ERROR(Error, words);
  } catch (...) {
    return std::current_exception();
  }
}

DdpEngine::Future MakeFuture(const at::Tensor& gradients) {
  std::vector<c10::Device> devices;
  if (!gradients.device().is_cpu()) devices.push_back(gradients.device());
  return c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices);
}

bool AnyLossy(const CodecsBySpec& codecs) {
  return std::ranges::any_of(codecs, [](const auto& entry) {
    return entry.second->codec_class() != CodecClass::kLossless;
  });
}

Status AllReduceFailed(const std::string& why) {
  return Internal("the uncompressed all-reduce of the model's process group failed: " + why);
}

// A sum that a lost worker has no part in may never end, and who destroys its process group
// waits for it: what holds the group is kept until the process ends.
void KeepForEver(const AllReduce& all_reduce) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<AllReduce>;
  const std::lock_guard lock(mutex);
  kept.push_back(all_reduce);
}

Traffic operator-(const Traffic& a, const Traffic& b) {
  return {a.bytes_up - b.bytes_up, a.bytes_down - b.bytes_down,
          a.transmit_seconds - b.transmit_seconds};
}

}  // namespace

DdpEngine::DdpEngine(std::vector<DdpParameter> parameters, DdpOptions options)
    : parameters_(std::move(parameters)),
      options_(std::move(options)),
      units_(parameters_.size()),
      moments_(parameters_),
      payoff_(false),
      ties_(std::make_shared<EngineTies>(this)) {}

Result<std::shared_ptr<DdpEngine>> DdpEngine::Create(CommunicatorOptions communicator,
                                                     std::vector<DdpParameter> parameters,
                                                     DdpOptions options) {
  if (parameters.empty()) return InvalidArgument("the model has no parameters to train");
  if (options.bucket_elements == 0) return InvalidArgument("a bucket must hold at least 1 KiB");
  std::shared_ptr<DdpEngine> engine(new DdpEngine(std::move(parameters), std::move(options)));
  CodecsBySpec codecs;
  for (const DdpParameter& p : engine->parameters_) {
    std::shared_ptr<const Codec>& codec = codecs[p.codec];
    if (codec != nullptr) continue;
    EQ_ASSIGN_OR_RETURN(codec, MakeCodec(p.codec));
  }
  EQ_RETURN_IF_ERROR(engine->ChooseExchanges(codecs, communicator.world_size));
  engine->payoff_ =
      Payoff(engine->options_.all_reduce && communicator.world_size > 1 && AnyLossy(codecs));
  // Waits for compressed messages end with the verdict, which the futures raise.
  communicator.on_peer_lost = [ties = engine->ties_](const Status& status) {
    ties->SetVerdict(status);
    ties->With([&](DdpEngine& e) { e.OnPeerLost(status); });
  };
  engine->patience_ = communicator.timeout + kBeyondTimeout;
  EQ_ASSIGN_OR_RETURN(engine->comm_, Communicator::Connect(communicator));
  engine->rank_ = communicator.rank;
  engine->world_size_ = communicator.world_size;
  engine->codecs_ = std::make_unique<RunCodecs>(std::move(codecs), engine->comm_.get(),
                                                /*adapt_every=*/0);
  engine->finisher_ = std::thread([raw = engine.get()] { raw->FinishLoop(); });
  return engine;
}

DdpEngine::~DdpEngine() { Close(); }

Status DdpEngine::ChooseExchanges(const CodecsBySpec& codecs, int world_size) {
  exchange_.asked = options_.exchange;
  for (const auto& [spec, down] : options_.down) {
    EQ_ASSIGN_OR_RETURN(exchange_.down[spec], MakeCodec(down));
  }
  for (const auto& [spec, codec] : codecs) {
    EQ_ASSIGN_OR_RETURN(const ExchangeChoice choice, exchange_.Choose(spec, codec, world_size));
    exchanges_[spec] = choice.Describe();
  }
  return {};
}

void DdpEngine::Close(const std::string& farewell, const Status& error) {
  if (comm_ == nullptr) return;
  comm_->SetFarewell(farewell);
  const Status closed = InvalidArgument(
      "the compression of this model was closed; wrap the model in DDP and compress it anew "
      "to train on");
  bool in_step = false;
  {
    const std::lock_guard lock(mutex_);
    in_step = in_step_;
    stop_ = true;
    changed_.notify_all();
  }
  if (!error.ok()) {
    comm_->Abort(error);
  } else if (in_step) {  // the others wait for the rest of it
    comm_->Abort(Internal(farewell + " within a step"));
  }
  ties_->Cut();
  if (finisher_.joinable()) finisher_.join();
  Fail(closed);
  if (reduction_ && !in_step) {  // for Layers and SaveState
    final_layers_ = Layers();
    reduction_->layers().SaveMemory(&loaded_);
    remembered_ = reduction_->layout();
  }
  reduction_.reset();
  std::unique_ptr<Communicator> comm;
  {
    const std::lock_guard lock(mutex_);
    final_traffic_ = comm_->traffic();
    comm = std::move(comm_);
  }
  if (options_.end) options_.end(std::move(comm));
}

DdpEngine::Future DdpEngine::Reduce(size_t index, bool last, const at::Tensor& gradients,
                                    const std::vector<size_t>& parameters) {
  Future future = MakeFuture(gradients);
  const bool starts = index == 0 && !begun_;
  Status status = starts ? StartStep() : Status();
  if (status.ok()) status = Accept(index, future);
  if (!status.ok()) {
    future->setError(ToException(status));
    return future;
  }
  if (starts) status = Begin(parameters);
  if (status.ok()) status = Take(index, last, gradients, parameters);
  if (!status.ok()) {
    Fail(status);
  } else if (last) {
    begun_ = false;
    const std::lock_guard lock(mutex_);
    finish_ = true;
    exact_step_.SetRollIsDue(exact_);
    changed_.notify_all();
  }
  return future;
}

void DdpEngine::Offer(size_t parameter, const at::Tensor& gradient) {
  if (!settled_) return;
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return;  // the futures will tell
  }
  if (Status status = TakeAhead(parameter, gradient); !status.ok()) Fail(status);
}

Status DdpEngine::TakeAhead(size_t parameter, const at::Tensor& gradient) {
  if (!begun_) {
    EQ_RETURN_IF_ERROR(StartStep());
    EQ_RETURN_IF_ERROR(Begin(reduction_->layout()[0]));
  }
  if (exact_) return {};
  EQ_ASSIGN_OR_RETURN(const bool sent, reduction_->Take(parameter, gradient));
  const std::lock_guard lock(mutex_);
  stats_.early += sent;
  return {};
}

Status DdpEngine::StartStep() {
  std::unique_lock lock(mutex_);
  // What workers say to each other between steps must not mix with that.
  changed_.wait(lock, [&] { return !exact_step_.roll_is_due() || !error_.ok(); });
  EQ_RETURN_IF_ERROR(error_);
  if (in_step_) return Internal("a backward began before the last one had ended");
  arrivals_.clear();
  ahead_.clear();
  in_step_ = true;
  comm_->SetActivity("in backward");
  return {};
}

Status DdpEngine::Accept(size_t index, const Future& future) {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (index != arrivals_.size() || !in_step_) {
    return Internal("DDP filled bucket " + std::to_string(index) + " after " +
                    std::to_string(arrivals_.size()) + " others");
  }
  arrivals_.push_back({.future = future});
  return {};
}

// `first`: the parameters of the step's first bucket.
Status DdpEngine::Begin(const std::vector<size_t>& first) {
  EQ_RETURN_IF_ERROR(WeighExact());
  begun_ = true;
  since_begin_ = Stopwatch();
  traffic_at_begin_ = comm_->traffic();
  incoming_.clear();
  waiting_.clear();
  gradient_bytes_ = 0;
  streaming_ = settled_ && reduction_->layout()[0] == first;
  exact_ = streaming_ && payoff_.exact() && !codecs_->AdaptsAfter(NextStep());
  if (exact_) EQ_RETURN_IF_ERROR(ties_->Verdict());
  return streaming_ ? BeginReduction() : Status();
}

// What is remembered is in the units of this step's gradients then.
Status DdpEngine::BeginReduction() {
  EQ_RETURN_IF_ERROR(reduction_->layers().SetMetric(moments_.Now()));
  units_.BeforeStep(reduction_->layers());
  if (exact_) {
    reduction_->BeginExactStep();
    const std::lock_guard lock(mutex_);
    exact_step_.Begin();
  } else {
    EQ_RETURN_IF_ERROR(reduction_->BeginStep(step_));
  }
  units_.InStep(reduction_->layers());
  return {};
}

// Whether this step is to be sent as it is, by what the last one took.
Status DdpEngine::WeighExact() {
  if (reduction_ == nullptr) return {};
  double seconds =
      options_.step_seconds ? options_.step_seconds(exact_) : since_begin_.Seconds();
  double exact_seconds = 0;
  if (payoff_.timing()) {
    const Traffic sent = comm_->traffic() - traffic_at_begin_;
    exact_seconds = sent.transmit_seconds *
                    SentByAllReduce(static_cast<double>(gradient_bytes_)) /
                    std::max(1.0, static_cast<double>(sent.bytes_up));
    if (!options_.shares_link) exact_seconds = 0;
    for (double* value : {&seconds, &exact_seconds}) {
      EQ_ASSIGN_OR_RETURN(const auto all,
                          comm_->AllGather(static_cast<uint64_t>(*value * 1e9)));
      *value = static_cast<double>(*std::ranges::max_element(all)) * 1e-9;
    }
  }
  payoff_.Add(seconds, exact_seconds);
  if (comm_->rank() == 0) Notify(payoff_.TakeNotice());
  return {};
}

// What an all-reduce of so many bytes sends up: they are scattered and gathered.
double DdpEngine::SentByAllReduce(double bytes) const {
  return 2 * bytes * (world_size_ - 1) / world_size_;
}

void DdpEngine::Notify(const std::string& notice) const {
  if (!notice.empty() && options_.on_notice) options_.on_notice(notice);
}

Status DdpEngine::Take(size_t index, bool last, const at::Tensor& gradients,
                       const std::vector<size_t>& parameters) {
  incoming_.push_back(parameters);
  if (!streaming_) {
    waiting_.push_back(gradients);
    return last ? LearnLayout() : Status();
  }
  const DdpLayout& layout = reduction_->layout();
  if (index >= layout.size() || layout[index] != parameters ||
      last != (index + 1 == layout.size())) {
    return Internal("DDP's buckets changed within a step");
  }
  return exact_ ? SendAsItIs(index, last, gradients) : Send(index, gradients);
}

Status DdpEngine::LearnLayout() {
  const bool is_known = reduction_ != nullptr && incoming_ == reduction_->layout();
  settled_ = is_known && !may_rebuild_;
  const DdpLayout remembered = std::exchange(remembered_, {});
  if (!is_known) {
    // What is random depends on the buckets, so a resumed run needs those that it had.
    if (!remembered.empty() && remembered != incoming_) {
      regrouped_ = Regrouped::Make(incoming_, waiting_, remembered, parameters_);
    }
    EQ_RETURN_IF_ERROR(MakeReduction(regrouped_ ? remembered : incoming_));
  }
  EQ_RETURN_IF_ERROR(BeginReduction());
  const std::vector<at::Tensor>& groups = regrouped_ ? regrouped_->groups() : waiting_;
  for (size_t d = 0; d < groups.size(); ++d) EQ_RETURN_IF_ERROR(Send(d, groups[d]));
  waiting_.clear();
  return {};
}

Status DdpEngine::MakeReduction(const DdpLayout& layout) {
  if (reduction_) reduction_->layers().SaveMemory(&loaded_);
  reduction_.reset();
  DdpReductionOptions options;
  options.bucket_elements = options_.bucket_elements;
  options.reducer = {
      .seed = Mix64(options_.seed),
      .threads = options_.threads,
      .measure_every = options_.measure_every,
      .on_reduced = [this](size_t bucket, bool is_mean) { OnReduced(bucket, is_mean); }};
  options.exchange = exchange_;
  options.before_sent = [this](size_t bucket) {
    codecs_->Capture(reduction_->plan().codecs[bucket], NextStep(), reduction_->bucket(bucket));
  };
  EQ_ASSIGN_OR_RETURN(reduction_, DdpReduction::Make(comm_.get(), layout, parameters_,
                                                     codecs_->Now(), std::move(options)));
  if (options_.may_discard) reduction_->layers().KeepMemoryOfZeros();
  const Sections memory = std::exchange(loaded_, {});
  return memory.empty() ? Status() : reduction_->layers().LoadMemory(memory);
}

// By the user's all-reduce, as DDP itself does it.
Status DdpEngine::SendAsItIs(size_t index, bool last, const at::Tensor& gradients) {
  EQ_RETURN_IF_ERROR(reduction_->Flush(index, gradients));
  gradient_bytes_ += gradients.nbytes();
  {
    const std::lock_guard lock(mutex_);
    EQ_RETURN_IF_ERROR(error_);
    exact_step_.StartSum(last);
  }
  try {
    gradients.div_(world_size_);
    options_.all_reduce(gradients)->addCallback(
        [ties = ties_, index, gradients](c10::ivalue::Future& done) {
          const std::string error = done.hasError() ? done.tryRetrieveErrorMessage() : "";
          ties->With([&](DdpEngine& engine) {
            done.hasError() ? engine.OnSumFailed(error) : engine.OnSummed(index, gradients);
          });
        });
  } catch (const std::exception& e) {
    OnSumFailed(e.what());
  }
  return {};
}

// A DDP bucket holds its mean, in any order.
void DdpEngine::OnSummed(size_t index, const at::Tensor& mean) {
  // Where a worker had a NaN all have one.
  const bool finite = !reduction_->layers().flushes() || at::isfinite(mean).all().item<bool>();
  Future future;
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return;
    future = std::exchange(arrivals_[index].future, nullptr);
    if (exact_step_.FinishSum(finite)) FinishExactStep();
    changed_.notify_all();
  }
  future->markCompleted(mean);
}

// CallTheRoll tells why: who was lost says more than how the sum has failed.
void DdpEngine::OnSumFailed(const std::string& why) {
  const std::lock_guard lock(mutex_);
  exact_step_.FailSum(AllReduceFailed(why));
  changed_.notify_all();
}

// In a step that goes as it is, beside the sums: whether all workers have come to its end, as
// nothing else of ours would tell who has not.
Status DdpEngine::CallTheRoll() {
  EQ_RETURN_IF_ERROR(comm_->Barrier());
  Status failure;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return exact_step_.sums() == 0 || !error_.ok() || stop_; });
    EQ_RETURN_IF_ERROR(error_);
    failure = exact_step_.failure();
    if (failure.ok()) {
      exact_step_.SetRollIsDue(false);
      changed_.notify_all();
      return {};
    }
  }
  const Status verdict = ties_->Verdict(patience_);
  return verdict.ok() ? failure : verdict;
}

// With the mutex locked.
void DdpEngine::FinishExactStep() {
  ++step_;
  if (exact_step_.all_finite() && reduction_->layers().flushes()) {
    reduction_->layers().CommitFlushed();
  }
  units_.AfterStep(reduction_->layers());
  ++stats_.steps;
  ++stats_.exact_steps;
  stats_.reducer.coordinates += reduction_->coordinates();
  stats_.reducer.wait_seconds += exact_step_.SecondsSinceLast();
  const uint64_t sent = CountUncompressed();
  stats_.traffic.bytes_up += sent;
  stats_.traffic.bytes_down += sent;
  in_step_ = false;
  exact_step_.End();
  comm_->SetActivity("between two backwards");
}

// With the mutex locked: counts what a step sends without compression, and returns its bytes.
uint64_t DdpEngine::CountUncompressed() {
  stats_.fp32_bytes_up += static_cast<uint64_t>(
      SentByAllReduce(sizeof(float) * static_cast<double>(reduction_->coordinates())));
  const auto sent =
      static_cast<uint64_t>(SentByAllReduce(static_cast<double>(gradient_bytes_)));
  stats_.uncompressed_bytes_up += sent;
  return sent;
}

// Nothing of ours is under way in a step that goes as it is, which would end with the verdict.
void DdpEngine::OnPeerLost(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!in_step_ || !exact_step_.is_under_way()) return;
  }
  Fail(status);
}

Status DdpEngine::Send(size_t ddp_bucket, const at::Tensor& gradients) {
  gradient_bytes_ += gradients.nbytes();
  EQ_RETURN_IF_ERROR(reduction_->Arrive(ddp_bucket, gradients));
  if (regrouped_) return {};
  std::vector<Reduced> ahead;
  {
    const std::lock_guard lock(mutex_);
    EQ_RETURN_IF_ERROR(error_);
    Arrival& arrival = arrivals_[ddp_bucket];
    arrival.is_here = true;
    arrival.buckets_left = reduction_->plan().parts[ddp_bucket].size();
    std::erase_if(ahead_, [&](const Reduced& reduced) {
      const bool is_of_this = reduction_->plan().ddp_bucket[reduced.bucket] == ddp_bucket;
      if (is_of_this) ahead.push_back(reduced);
      return is_of_this;
    });
  }
  for (const Reduced& reduced : ahead) Return(reduced.bucket, reduced.is_mean);
  return {};
}

void DdpEngine::OnReduced(size_t bucket, bool is_mean) {
  if (regrouped_) return reduction_->Return(bucket, is_mean);  // FinishStep does the rest
  {
    const std::lock_guard lock(mutex_);
    const size_t d = reduction_->plan().ddp_bucket[bucket];
    if (d >= arrivals_.size() || !arrivals_[d].is_here) {
      ahead_.push_back({bucket, is_mean});
      return;
    }
  }
  Return(bucket, is_mean);
}

// To DDP, whose bucket has arrived.
void DdpEngine::Return(size_t bucket, bool is_mean) {
  reduction_->Return(bucket, is_mean);
  const size_t d = reduction_->plan().ddp_bucket[bucket];
  Future future;
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return;
    // The last one's future is for FinishStep: with it the step is over.
    if (--arrivals_[d].buckets_left == 0 && d + 1 < reduction_->layout().size()) {
      future = arrivals_[d].future;
    }
  }
  if (future) future->markCompleted(reduction_->Depart(d));
}

void DdpEngine::FinishLoop() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || finish_; });
      if (!finish_) return;
      finish_ = false;
    }
    const Status status = exact_ ? CallTheRoll() : FinishStep();
    if (!status.ok()) Fail(status);
  }
}

Status DdpEngine::FinishStep() {
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reduction_->Finish());
  ++step_;
  units_.AfterStep(reduction_->layers());
  if (outcome.skipped) {
    codecs_->Forget();
  } else {
    EQ_ASSIGN_OR_RETURN(const bool adapted, codecs_->Adapt(static_cast<int64_t>(step_)));
    if (adapted) EQ_RETURN_IF_ERROR(reduction_->layers().UseCodecs(codecs_->Now()));
  }
  std::vector<at::Tensor> gradients = Collect();
  std::vector<Future> futures;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.skipped += outcome.skipped;
    stats_.reducer += reduction_->layers().TakeStats();
    CountUncompressed();
    if (outcome.skipped) stats_.skip_reason = outcome.reason;
    EQ_RETURN_IF_ERROR(error_);
    for (size_t i = arrivals_.size() - gradients.size(); i < arrivals_.size(); ++i) {
      futures.push_back(arrivals_[i].future);
    }
    arrivals_.clear();  // whose tensors DDP may free when it rebuilds its buckets
    in_step_ = false;
    comm_->SetActivity("between two backwards");
  }
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i]->markCompleted(std::move(gradients[i]));
  }
  return {};
}

// The tensors whose futures are not complete, when all has been averaged: DDP's last ones.
std::vector<at::Tensor> DdpEngine::Collect() {
  const size_t groups = reduction_->layout().size();
  if (!regrouped_) return {reduction_->Depart(groups - 1)};
  for (size_t d = 0; d < groups; ++d) reduction_->Depart(d);
  return std::exchange(regrouped_, nullptr)->Return();
}

// All that DDP still waits for ends with the error, and so does all that comes.
void DdpEngine::Fail(const Status& status) {
  std::vector<Arrival> arrivals;
  bool closing = false;
  {
    const std::lock_guard lock(mutex_);
    closing = stop_;
    if (error_.ok()) error_ = status;
    if (exact_step_.is_under_way() && exact_step_.sums() > 0) KeepForEver(options_.all_reduce);
    arrivals = std::exchange(arrivals_, {});
    in_step_ = false;
    exact_step_.End();
    changed_.notify_all();
  }
  // A lost worker is known to all; what went wrong here is not.
  if (status.code() != StatusCode::kUnavailable && !closing) comm_->Abort(status);
  for (const Arrival& arrival : arrivals) {
    if (arrival.future && !arrival.future->completed()) {
      arrival.future->setErrorIfNeeded(ToException(status));
    }
  }
}

DdpStats DdpEngine::stats() {
  const std::lock_guard lock(mutex_);
  DdpStats stats = stats_;
  const Traffic ours = (comm_ ? comm_->traffic() : final_traffic_) - traffic_at_reset_;
  stats.traffic.bytes_up += ours.bytes_up;
  stats.traffic.bytes_down += ours.bytes_down;
  stats.traffic.transmit_seconds = ours.transmit_seconds;
  return stats;
}

void DdpEngine::ResetStats() {
  const std::lock_guard lock(mutex_);
  stats_ = {};
  final_layers_.clear();
  traffic_at_reset_ = comm_ ? comm_->traffic() : final_traffic_;
  if (reduction_) reduction_->layers().certificate().Forget();
}

std::vector<nlohmann::json> DdpEngine::Layers() {
  if (reduction_ == nullptr) return final_layers_;
  return reduction_->layers().certificate().Lines(static_cast<int64_t>(step_),
                                                  codecs_->epoch());
}

DdpStateOwner DdpEngine::Owner() const { return {parameters_, rank_, world_size_, *codecs_}; }

Sections DdpEngine::SaveState() {
  const std::span<const double> units = units_.of_memory();
  DdpState state{.step = step_,
                 .layout = reduction_ ? reduction_->layout() : remembered_,
                 .units = {units.begin(), units.end()},
                 .fitted = codecs_->Fitted(),
                 .memory = loaded_};
  if (reduction_) reduction_->layers().SaveMemory(&state.memory);
  return SaveDdpState(std::move(state), Owner());
}

Status DdpEngine::LoadState(const Sections& sections) {
  EQ_ASSIGN_OR_RETURN(DdpState state, ReadDdpState(sections, Owner()));
  MemoryUnits checked = units_;
  EQ_RETURN_IF_ERROR(checked.SetOfMemory(std::move(state.units)));
  EQ_RETURN_IF_ERROR(codecs_->UseFitted(state.fitted));
  units_ = std::move(checked);
  step_ = state.step;
  if (reduction_ == nullptr) {
    remembered_ = std::move(state.layout);  // none is known before the first step
    loaded_ = std::move(state.memory);
    return {};
  }
  EQ_RETURN_IF_ERROR(reduction_->layers().UseCodecs(codecs_->Now()));
  return reduction_->layers().LoadMemory(state.memory);
}

void DdpEngine::RestoreMemory(const std::vector<size_t>& parameters) {
  if (reduction_ == nullptr) return;
  for (const size_t p : parameters) reduction_->layers().RestoreMemory(p);
}

Status DdpEngine::SetEpoch(int epoch) {
  const bool changed = codecs_->SetEpoch(epoch);
  return reduction_ && changed ? reduction_->layers().UseCodecs(codecs_->Now()) : Status();
}

}  // namespace elastiquant
