#include "elastiquant/ddp/ddp_engine.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

// For which the verdict on a lost worker is awaited, beyond the time that one may be silent.
constexpr std::chrono::seconds kBeyondTimeout{2};

bool AnyLossy(const CodecsBySpec& codecs) {
  return std::ranges::any_of(codecs, [](const auto& entry) {
    return entry.second->codec_class() != CodecClass::kLossless;
  });
}

}  // namespace

DdpEngine::DdpEngine(std::vector<DdpParameter> parameters, DdpOptions options)
    : parameters_(std::move(parameters)),
      options_(std::move(options)),
      units_(parameters_.size()),
      moments_(parameters_),
      ties_(std::make_shared<EngineTies>()),
      exact_step_(options_.all_reduce, ties_,
                  [this](size_t index, const at::Tensor& mean) { OnMean(index, mean); }),
      finisher_([this] { Finish(); }) {}

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
  engine->clock_.emplace(PayoffClock::Options{
      .enabled = engine->options_.all_reduce && communicator.world_size > 1 && AnyLossy(codecs),
      .shares_link = engine->options_.shares_link,
      .step_seconds = engine->options_.step_seconds});
  // Waits for compressed messages end with the verdict, which the futures raise.
  communicator.on_peer_lost = [raw = engine.get(), ties = engine->ties_](const Status& s) {
    ties->SetVerdict(s);
    ties->With([&] { raw->OnPeerLost(s); });
  };
  engine->patience_ = communicator.timeout + kBeyondTimeout;
  EQ_ASSIGN_OR_RETURN(engine->comm_, Communicator::Connect(communicator));
  engine->rank_ = communicator.rank;
  engine->world_size_ = communicator.world_size;
  engine->codecs_ = std::make_unique<RunCodecs>(std::move(codecs), engine->comm_.get(),
                                                /*adapt_every=*/0);
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
  is_closing_ = true;
  const bool in_step = futures_.in_step();
  if (!error.ok()) {
    comm_->Abort(error);
  } else if (in_step) {  // the others wait for the rest of it
    comm_->Abort(Internal(farewell + " within a step"));
  }
  ties_->Cut();
  exact_step_.Cancel();
  finisher_.Stop();
  Fail(closed);
  if (reduction_) {  // for Layers and SaveState
    final_layers_ = Layers();
    // Within a step this is what was remembered before it.
    reduction_->layers().SaveMemory(&loaded_);
    remembered_ = reduction_->layout();
  }
  EndReduction();
  std::unique_ptr<Communicator> comm;
  {
    const std::lock_guard lock(mutex_);
    final_traffic_ = comm_->traffic();
    comm = std::move(comm_);
  }
  if (options_.end) options_.end(std::move(comm));
}

// Its threads may be about to call OnReduced, which needs it.
void DdpEngine::EndReduction() {
  if (reduction_) reduction_->Stop();
  reduction_.reset();
}

Future DdpEngine::Reduce(size_t index, bool last, const at::Tensor& gradients,
                         const std::vector<size_t>& parameters) {
  Future future = MakeFuture(gradients);
  const bool starts = index == 0 && !begun_;
  Status status = starts ? StartStep() : Status();
  if (status.ok()) status = futures_.Add(index, future);
  if (!status.ok()) {
    SetError(future, status);
    return future;
  }
  if (starts) status = Begin(parameters);
  if (status.ok()) status = Take(index, last, gradients, parameters);
  if (!status.ok()) {
    Fail(status);
  } else if (last) {
    begun_ = false;
    finisher_.Start();
  }
  return future;
}

void DdpEngine::Offer(size_t parameter, const at::Tensor& gradient) {
  if (!settled_ || !futures_.error().ok()) return;  // the futures will tell
  if (Status status = TakeAhead(parameter, gradient); !status.ok()) Fail(status);
}

Status DdpEngine::TakeAhead(size_t parameter, const at::Tensor& gradient) {
  if (!begun_) {
    EQ_RETURN_IF_ERROR(StartStep());
    EQ_RETURN_IF_ERROR(Begin(reduction_->layout()[0]));
  }
  if (exact_) return {};
  EQ_ASSIGN_OR_RETURN(const bool sent, reduction_->Take(parameter, gradient));
  if (sent) counter_.CountEarly();
  return {};
}

Status DdpEngine::StartStep() {
  exact_step_.AwaitRoll();
  EQ_RETURN_IF_ERROR(futures_.Begin());
  comm_->SetActivity("in backward");
  return {};
}

// `first`: the parameters of the step's first bucket.
Status DdpEngine::Begin(const std::vector<size_t>& first) {
  if (options_.needs_settings && !has_settings_) {
    return InvalidArgument(
        "a backward came with no forward of the model since compress(): call compress() first, "
        "then model(x), and not model.forward(x), which leaves out what is read at each "
        "forward");
  }
  EQ_RETURN_IF_ERROR(clock_->BeginStep(
      *comm_, exact_, SentByAllReduce(static_cast<double>(gradient_bytes_), world_size_)));
  const std::string notice = clock_->TakeNotice();
  if (rank_ == 0 && !notice.empty() && options_.on_notice) options_.on_notice(notice);
  begun_ = true;
  incoming_.clear();
  waiting_.clear();
  gradient_bytes_ = 0;
  streaming_ = settled_ && reduction_->layout()[0] == first;
  exact_ = streaming_ && clock_->exact() && !codecs_->AdaptsAfter(NextStep());
  if (exact_) EQ_RETURN_IF_ERROR(ties_->Verdict());
  return streaming_ ? BeginReduction() : Status();
}

// What is remembered is in the units of this step's gradients then.
Status DdpEngine::BeginReduction() {
  // Moments may have to come from a GPU, for which most uncompressed steps have no use.
  if (!exact_ || reduction_->layers().HoldsBack()) {
    EQ_RETURN_IF_ERROR(reduction_->layers().SetMetric(moments_.Now()));
  }
  units_.BeforeStep(reduction_->layers());
  if (exact_) {
    reduction_->BeginExactStep();
    exact_step_.Begin();
  } else {
    EQ_RETURN_IF_ERROR(reduction_->BeginStep(step_, uncompressed_));
    if (uncompressed_) clock_->Forget();  // compressed steps take another time
  }
  units_.InStep(reduction_->layers());
  return {};
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
  nlohmann::json measured;
  if (reduction_) {
    reduction_->layers().SaveMemory(&loaded_);
    measured = reduction_->layers().certificate().SaveState();
  }
  EndReduction();
  DdpReductionOptions options;
  options.bucket_elements = options_.bucket_elements;
  options.reducer = {
      .seed = Mix64(options_.seed),
      .threads = options_.threads,
      .measure_every = options_.measure_every,
      .on_reduced = [this](size_t bucket, bool is_mean) { OnReduced(bucket, is_mean); }};
  options.exchange = exchange_;
  options.has_uncompressed = options_.has_uncompressed;
  options.before_sent = [this](size_t bucket) {
    codecs_->Capture(reduction_->plan().codecs[bucket], NextStep(), reduction_->bucket(bucket));
  };
  EQ_ASSIGN_OR_RETURN(reduction_, DdpReduction::Make(comm_.get(), layout, parameters_,
                                                     codecs_->Now(), std::move(options)));
  if (options_.may_discard) reduction_->layers().KeepMemoryOfZeros();
  if (!measured.is_null()) {
    EQ_RETURN_IF_ERROR(reduction_->layers().certificate().LoadState(measured));
  }
  const Sections memory = std::exchange(loaded_, {});
  return memory.empty() ? Status() : reduction_->layers().LoadMemory(memory);
}

// By the user's all-reduce, as DDP itself does it.
Status DdpEngine::SendAsItIs(size_t index, bool last, const at::Tensor& gradients) {
  EQ_RETURN_IF_ERROR(reduction_->Flush(index, gradients));
  gradient_bytes_ += gradients.nbytes();
  EQ_RETURN_IF_ERROR(futures_.error());
  exact_step_.Average(index, last, gradients, world_size_);
  return {};
}

// A DDP bucket holds its mean, in any order.
void DdpEngine::OnMean(size_t index, const at::Tensor& mean) {
  // Where a worker had a NaN all have one.
  const bool finite = !reduction_->layers().flushes() || at::isfinite(mean).all().item<bool>();
  const Future future = futures_.Release(index);
  if (!future) return;
  if (exact_step_.CountMean(finite)) FinishExactStep();
  future->markCompleted(mean);
}

void DdpEngine::FinishExactStep() {
  ++step_;
  awaits_restoring_ = options_.may_discard;
  if (exact_step_.all_finite() && reduction_->layers().flushes()) {
    reduction_->layers().CommitFlushed();
  }
  units_.AfterStep(reduction_->layers());
  counter_.CountExactStep(StepSize(), exact_step_.SecondsSinceLast());
  (void)futures_.End(0);  // if training has ended, they have its error
  comm_->SetActivity("between two backwards");
}

StepCounter::Size DdpEngine::StepSize() const {
  return {reduction_->coordinates(), gradient_bytes_, world_size_};
}

// Nothing of ours is under way in a step that goes as it is, which would end with the verdict.
void DdpEngine::OnPeerLost(const Status& status) {
  if (exact_step_.is_under_way()) Fail(status);
}

Status DdpEngine::Send(size_t ddp_bucket, const at::Tensor& gradients) {
  EQ_RETURN_IF_ERROR(reduction_->Arrive(ddp_bucket, gradients));
  gradient_bytes_ += gradients.nbytes();  // of which a sparse tensor, refused by now, has none
  if (regrouped_) return {};
  EQ_ASSIGN_OR_RETURN(const std::vector<Reduced> ahead,
                      futures_.Arrive(ddp_bucket, reduction_->plan().parts[ddp_bucket].size()));
  for (const Reduced& reduced : ahead) Return(reduced.bucket, reduced.is_mean);
  return {};
}

void DdpEngine::OnReduced(size_t bucket, bool is_mean) {
  if (regrouped_) return reduction_->Return(bucket, is_mean);  // FinishStep does the rest
  const size_t ddp_bucket = reduction_->plan().ddp_bucket[bucket];
  if (futures_.HasArrived(ddp_bucket, {bucket, is_mean})) Return(bucket, is_mean);
}

// To DDP, whose bucket has arrived.
void DdpEngine::Return(size_t bucket, bool is_mean) {
  reduction_->Return(bucket, is_mean);
  const size_t d = reduction_->plan().ddp_bucket[bucket];
  // The last one's future is for FinishStep: with it the step is over.
  if (!futures_.CountReturned(d) || d + 1 == reduction_->layout().size()) return;
  at::Tensor mean = reduction_->Depart(d);
  // If another thread has ended the step with an error, the future has that error already.
  if (const Future future = futures_.Release(d)) future->markCompleted(std::move(mean));
}

void DdpEngine::Finish() {
  const Status status =
      exact_ ? exact_step_.CallTheRoll([&] { return comm_->Barrier(); }, patience_)
             : FinishStep();
  if (!status.ok()) Fail(status);
}

Status DdpEngine::FinishStep() {
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reduction_->Finish());
  ++step_;
  awaits_restoring_ = options_.may_discard;
  units_.AfterStep(reduction_->layers());
  if (outcome.skipped) {
    codecs_->Forget();
  } else {
    EQ_ASSIGN_OR_RETURN(const bool adapted, codecs_->Adapt(static_cast<int64_t>(step_)));
    if (adapted) EQ_RETURN_IF_ERROR(reduction_->layers().UseCodecs(codecs_->Now()));
  }
  std::vector<at::Tensor> gradients = Collect();
  counter_.CountStep(StepSize(), outcome, reduction_->layers().TakeStats());
  EQ_ASSIGN_OR_RETURN(const std::vector<Future> futures, futures_.End(gradients.size()));
  comm_->SetActivity("between two backwards");
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
  const std::vector<Future> futures = futures_.Fail(status);
  exact_step_.Cancel();
  // A lost worker is known to all; what went wrong here is not.
  if (status.code() != StatusCode::kUnavailable && !is_closing_) comm_->Abort(status);
  for (const Future& future : futures) SetError(future, status);
}

Traffic DdpEngine::Sent() const {
  const std::lock_guard lock(mutex_);
  return comm_ ? comm_->traffic() : final_traffic_;
}

DdpStats DdpEngine::stats() const { return counter_.Since(Sent()); }

void DdpEngine::ResetStats() {
  counter_.Reset(Sent());
  final_layers_.clear();
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

Status DdpEngine::CheckState(const Sections& sections) const {
  return ReadDdpState(sections, Owner()).status();
}

Status DdpEngine::LoadState(const Sections& sections) {
  EQ_ASSIGN_OR_RETURN(DdpState state, ReadDdpState(sections, Owner()));
  MemoryUnits checked = units_;
  EQ_RETURN_IF_ERROR(checked.SetOfMemory(std::move(state.units)));
  EQ_RETURN_IF_ERROR(codecs_->UseFitted(state.fitted));
  units_ = std::move(checked);
  step_ = state.step;
  awaits_restoring_ = false;
  if (reduction_ == nullptr) {
    remembered_ = std::move(state.layout);  // none is known before the first step
    loaded_ = std::move(state.memory);
    return {};
  }
  EQ_RETURN_IF_ERROR(reduction_->layers().UseCodecs(codecs_->Now()));
  return reduction_->layers().LoadMemory(state.memory);
}

void DdpEngine::RestoreMemory(const std::vector<size_t>& parameters) {
  awaits_restoring_ = false;
  if (reduction_ == nullptr) return;
  for (const size_t p : parameters) reduction_->layers().RestoreMemory(p);
}

Status DdpEngine::SetEpoch(int epoch) {
  const bool changed = codecs_->SetEpoch(epoch);
  return reduction_ && changed ? reduction_->layers().UseCodecs(codecs_->Now()) : Status();
}

}  // namespace elastiquant
