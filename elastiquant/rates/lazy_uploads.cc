#include "elastiquant/rates/lazy_uploads.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "elastiquant/protocol/lazy.h"
#include "elastiquant/rates/logistic_problem.h"

namespace elastiquant::rates {
namespace {

using Json = nlohmann::ordered_json;
using Doubles = std::vector<double>;

constexpr size_t kFeatures = 50;
constexpr int64_t kMostSteps = 100000;

LogisticProblem MakeProblem(const LazyUploadOptions& options) {
  std::vector<LogisticLoss::Options> workers;
  workers.reserve(options.workers);
  for (size_t m = 0; m < options.workers; ++m) {
    workers.push_back({.features = kFeatures,
                       .smoothness = std::pow(std::pow(1.3, m) + 1, 2),
                       .seed = options.seed,
                       .worker = m});
  }
  return LogisticProblem(workers);
}

struct Rule {
  const char* name;
  LazyRule rule;
  const char* codec;
  double weight;              // xi, as published
  int64_t most_silent = 100;  // 0: it sends always
};
constexpr Rule kRules[] = {
    {"gradient descent", LazyRule::kLagWk, "fp32", .1, 0},
    {"lag-wk", LazyRule::kLagWk, "fp32", .1},
    {"lag-ps", LazyRule::kLagPs, "fp32", 1},
    {"laq", LazyRule::kLaq, "laq:bits=4", .08},
    {"lasg", LazyRule::kLasg, "fp32", .1},
};

std::vector<float> AsFloats(const Doubles& values) { return {values.begin(), values.end()}; }

// The workers of one run, in step with each other.
struct Descent {
  const LogisticProblem& problem;
  std::vector<Lazy> workers = {};
  Doubles w = Doubles(kFeatures), gradient = Doubles(kFeatures);
  size_t bytes = 0;

  Status Step() {
    std::vector<std::vector<uint8_t>> messages;
    for (size_t m = 0; m < workers.size(); ++m) {
      EQ_ASSIGN_OR_RETURN(const std::span<const uint8_t> message, Message(m));
      messages.emplace_back(message.begin(), message.end());
      bytes += message.size();
    }
    std::optional<LazyApply> apply;
    for (Lazy& worker : workers) {
      for (size_t from = 0; from < messages.size(); ++from) {
        EQ_ASSIGN_OR_RETURN(apply, worker.OnMessage(static_cast<int>(from), messages[from]));
      }
    }
    double squares = 0;
    for (size_t i = 0; i < kFeatures; ++i) {
      const double move = problem.rate() * static_cast<double>(apply->mean[i]);
      squares += move * move;
      w[i] -= move;
    }
    for (Lazy& worker : workers) worker.OnMoved(squares, problem.rate());
    return {};
  }

  Result<std::span<const uint8_t>> Message(size_t m) {
    problem.workers()[m].Loss(w, gradient);
    const std::vector<float> here = AsFloats(gradient), weights = AsFloats(w);
    std::vector<float> there;
    if (workers[m].wants_reference()) {
      const std::span<const float> last = workers[m].last_weights();
      problem.workers()[m].Loss(Doubles(last.begin(), last.end()), gradient);
      there = AsFloats(gradient);
    }
    return workers[m].OnGradient({.gradient = here, .weights = weights, .reference = there});
  }
};

// Until the loss is at most `enough`.
Result<Json> RowOfRule(const Rule& c, const LogisticProblem& problem, double enough,
                       uint64_t seed) {
  Descent descent{.problem = problem};
  for (size_t m = 0; m < problem.workers().size(); ++m) {
    EQ_ASSIGN_OR_RETURN(Lazy worker,
                        Lazy::Make({.rule = c.rule,
                                    .rank = static_cast<int>(m),
                                    .world_size = static_cast<int>(problem.workers().size()),
                                    .elements = kFeatures,
                                    .codec = c.codec,
                                    .seed = seed,
                                    .weight = c.weight,
                                    .most_silent = c.most_silent,
                                    .smoothness = problem.workers()[m].smoothness()}));
    descent.workers.push_back(std::move(worker));
  }
  int64_t steps = 0;
  Doubles gradient(kFeatures);
  while (problem.Loss(descent.w, gradient) > enough && steps < kMostSteps) {
    EQ_RETURN_IF_ERROR(descent.Step());
    ++steps;
  }
  size_t uploads = 0;
  Json by_worker = Json::array();
  for (const Lazy& worker : descent.workers) {
    uploads += worker.uploads();
    by_worker.push_back(worker.uploads());
  }
  return Json{{"rule", c.name},
              {"codec", c.codec},
              {"steps", steps < kMostSteps ? Json(steps) : Json(nullptr)},
              {"uploads", uploads},
              {"uploads_by_worker", std::move(by_worker)},
              {"bytes", descent.bytes}};
}

}  // namespace

Result<Json> LazyUploads(const LazyUploadOptions& o) {
  if (o.workers < 2 || o.workers > 64) {
    return InvalidArgument("workers must be from 2 to 64");
  }
  if (!(o.gap >= 1e-10 && o.gap < 1)) {
    return InvalidArgument("the gap must be from 1e-10, which floats can tell, to below 1");
  }
  const LogisticProblem problem = MakeProblem(o);
  Doubles gradient(kFeatures);
  const double enough = problem.Loss(problem.Least(), gradient) + o.gap;
  Json rows = Json::array();
  for (const Rule& rule : kRules) {
    EQ_ASSIGN_OR_RETURN(Json row, RowOfRule(rule, problem, enough, o.seed));
    rows.push_back(std::move(row));
  }
  return Json{{"workers", o.workers}, {"gap", o.gap}, {"seed", o.seed}, {"rows", rows}};
}

}  // namespace elastiquant::rates
