// Workers for tests of DdpEngine, which are threads, with gradients that can be computed anew.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/ddp/ddp_engine.h"
#include "elastiquant/ddp/testing.h"

namespace elastiquant {

using Layout = DdpLayout;

inline std::vector<DdpParameter> Parameters(const std::string& codec) {
  return {Parameter("conv.weight", 30, 100, codec), Parameter("conv.bias", 30, 1, "fp32"),
          Parameter("fc.weight", 3, 1667, codec), Parameter("fc.bias", 3, 1, "fp32")};
}

// As DDP does: one bucket at first, two after it has seen the order of backward.
inline const Layout kFirst = {{0, 1, 2, 3}};
inline const Layout kRebuilt = {{3, 2}, {1, 0}};

// The gradient of a worker in a step at a coordinate of a parameter.
inline float Gradient(int rank, int step, size_t parameter, size_t i) {
  return std::sin(static_cast<float>(1 + rank + 7 * step + 3 * static_cast<int>(parameter)) *
                  static_cast<float>(i + 1) * .01f);
}

// The values of each parameter.
inline std::vector<at::Tensor> ByParameter(const std::vector<at::Tensor>& buckets,
                                           const Layout& layout) {
  const std::vector<DdpParameter> parameters = Parameters("fp32");
  std::vector<at::Tensor> values(parameters.size());
  for (size_t d = 0; d < layout.size(); ++d) {
    int64_t at = 0;
    for (const size_t p : layout[d]) {
      const auto size = static_cast<int64_t>(parameters[p].shape.elements);
      values[p] = buckets[d].narrow(0, at, size);
      at += size;
    }
  }
  return values;
}

// A worker that trains as DDP would.
class Worker {
 public:
  Worker(CommunicatorOptions options, int rank, const std::string& codec,
         DdpOptions ddp = {.measure_every = 1})
      : parameters_(Parameters(codec)) {
    options.rank = rank;
    rank_ = rank;
    world_ = options.world_size;
    engine = DdpEngine::Create(options, parameters_, ddp).value();
  }

  // The means, one bucket behind the other.
  std::vector<at::Tensor> Step(int step, const Layout& layout, at::ScalarType type = at::kFloat,
                               bool poison = false) {
    std::vector<at::Tensor> gradients;
    for (const auto& bucket : layout) {
      std::vector<float> values;
      for (const size_t p : bucket) {
        for (size_t i = 0; i < parameters_[p].shape.elements; ++i) {
          values.push_back(unused.contains(p) ? 0 : scale * Gradient(rank_, step, p, i));
        }
      }
      if (poison) values[1] = std::nanf("");
      gradients.push_back(at::tensor(values).to(type));
    }
    std::vector<Future> futures;
    for (size_t d = 0; d < layout.size(); ++d) {
      int64_t at = 0;
      for (const size_t p : layout[d]) {
        const auto size = static_cast<int64_t>(parameters_[p].shape.elements);
        if (offers && offers(p)) engine->Offer(p, gradients[d].narrow(0, at, size));
        at += size;
      }
      futures.push_back(engine->Reduce(d, d + 1 == layout.size(), gradients[d], layout[d]));
    }
    std::vector<at::Tensor> means;
    for (auto& future : futures) {
      future->waitAndThrow();
      means.push_back(future->value().toTensor());
    }
    return means;
  }

  // The mean gradient of a parameter.
  at::Tensor Mean(int step, size_t p) const {
    std::vector<float> values(parameters_[p].shape.elements);
    for (size_t i = 0; i < values.size(); ++i) {
      for (int r = 0; r < world_; ++r) values[i] += Gradient(r, step, p, i);
      values[i] /= static_cast<float>(world_);
    }
    return at::tensor(values);
  }

  // The greatest difference of what was sent in all steps from the sum of the true means.
  double ErrorOfSum(const std::vector<at::Tensor>& sums, const Layout& layout, int last) const {
    double worst = 0;
    for (size_t d = 0; d < layout.size(); ++d) {
      std::vector<at::Tensor> expected;
      for (const size_t p : layout[d]) {
        expected.push_back(Mean(0, p));
        for (int step = 1; step <= last; ++step) expected.back().add_(Mean(step, p));
      }
      worst = std::max(worst, (at::cat(expected) - sums[d]).abs().max().item<double>());
    }
    return worst;
  }

  // The greatest difference from the true mean.
  double Error(const std::vector<at::Tensor>& means, const Layout& layout, int step) {
    double worst = 0;
    for (size_t d = 0; d < layout.size(); ++d) {
      int64_t at = 0;
      const at::Tensor values = means[d].to(at::kFloat);
      for (const size_t p : layout[d]) {
        for (size_t i = 0; i < parameters_[p].shape.elements; ++i, ++at) {
          float mean = 0;
          for (int r = 0; r < world_; ++r) mean += Gradient(r, step, p, i);
          mean /= static_cast<float>(world_);
          worst = std::max<double>(worst, std::abs(values.const_data_ptr<float>()[at] - mean));
        }
      }
    }
    return worst;
  }

  std::shared_ptr<DdpEngine> engine;
  std::function<bool(size_t parameter)> offers = nullptr;  // which to offer
  float scale = 1;                                         // of gradients
  std::set<size_t> unused;                                 // parameters without one

 private:
  std::vector<DdpParameter> parameters_;
  int rank_ = 0, world_ = 1;
};

// Calls body(rank) on a thread for each rank.
inline void RunRanks(int world, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

// The all-reduce of the user's process group: who comes last ends it for all.
class UsersSum {
 public:
  explicit UsersSum(int world) : waiting_(static_cast<size_t>(world)) {}

  Future Add(int rank, const at::Tensor& values) {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    std::vector<Call> calls;
    {
      const std::lock_guard lock(mutex_);
      waiting_[static_cast<size_t>(rank)].push_back({values, future});
      for (const auto& of_rank : waiting_) {
        if (of_rank.empty()) return future;
      }
      for (auto& of_rank : waiting_) {
        calls.push_back(of_rank.front());
        of_rank.pop_front();
      }
    }
    const bool all_fail = fails;  // who is told first may change it
    at::Tensor sum = calls[0].values.clone();
    for (size_t r = 1; r < calls.size(); ++r) sum.add_(calls[r].values);
    for (Call& call : calls) {
      call.values.copy_(sum);
      if (all_fail) {
        call.future->setError(std::make_exception_ptr(std::runtime_error("Connection reset")));
      } else {
        call.future->markCompleted(std::vector<at::Tensor>{call.values});
      }
    }
    return future;
  }

  std::atomic<bool> fails = false;

 private:
  struct Call {
    at::Tensor values;
    Future future;
  };

  std::mutex mutex_;
  std::vector<std::deque<Call>> waiting_;  // by rank
};

// Steps of which compressed ones count as longer on worker 1, and on worker 0 as shorter.
inline DdpOptions Switching(int rank, UsersSum& sum) {
  DdpOptions ddp;
  ddp.all_reduce = [rank, &sum](const at::Tensor& values) { return sum.Add(rank, values); };
  ddp.shares_link = false;  // how long the link is busy depends on the machine
  ddp.step_seconds = [rank](bool exact) { return exact ? .1 : rank == 0 ? .05 : .2; };
  return ddp;
}
// From here on steps are sent as fp32.
inline constexpr int kFirstExact = Payoff::kSettlingSteps + 1 + Payoff::kTimedSteps;

}  // namespace elastiquant
