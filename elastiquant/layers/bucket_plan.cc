#include "elastiquant/layers/bucket_plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "elastiquant/base/split.h"
#include "elastiquant/codec/message_shape.h"

namespace elastiquant {
namespace {

bool Matches(const std::string& pattern, const ParameterShape& parameter) {
  if (pattern == "1d") return parameter.dimensions <= 1;
  return fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0;
}

Result<std::vector<bool>> ChooseExact(std::span<const ParameterShape> parameters,
                                      const std::string& policy) {
  std::vector<bool> exact(parameters.size(), false);
  if (policy == "none") return exact;
  for (const std::string_view part : SplitAt(policy, ',')) {
    const std::string pattern(part);
    bool any = pattern == "1d";  // a model without biases and norms is no mistake
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!Matches(pattern, parameters[i])) continue;
      exact[i] = true;
      any = true;
    }
    if (!any) {
      return InvalidArgument("no parameter's name matches '" + pattern +
                             "'; valid are: none, 1d, or patterns of names such as '" +
                             parameters.back().name + "' or '" + parameters.front().name + "'");
    }
  }
  return exact;
}

// Buckets being filled, of the two sorts of each group.
class Planner {
 public:
  explicit Planner(size_t limit) : limit_(limit) {}

  void Add(size_t parameter, size_t elements, size_t group, bool exact) {
    const Sort sort{group, exact};
    PlannedBucket& open = open_[sort];
    open.exact = exact;
    open.slots.push_back({parameter, open.elements});
    open.elements += elements;
    if (open.elements >= limit_) Close(sort);
  }

  std::vector<PlannedBucket> Finish() {
    while (!open_.empty()) Close(open_.begin()->first);
    // Backward fills first the bucket whose last tensor it comes to first.
    std::ranges::sort(closed_, std::greater(), [](const PlannedBucket& bucket) {
      return bucket.slots.back().parameter;
    });
    return std::move(closed_);
  }

 private:
  using Sort = std::pair<size_t, bool>;  // the group, and whether the bucket is exact
  void Close(Sort sort) {
    closed_.push_back(std::move(open_.at(sort)));
    open_.erase(sort);
  }
  size_t limit_;
  std::map<Sort, PlannedBucket> open_;
  std::vector<PlannedBucket> closed_;
};

BucketPlace PlaceScalars(std::vector<PlannedBucket>& buckets, size_t scalars) {
  if (scalars == 0) return {};
  auto place = std::find_if(buckets.rbegin(), buckets.rend(), [](auto& b) { return b.exact; });
  if (place == buckets.rend()) {
    buckets.emplace_back().exact = true;
    place = buckets.rbegin();
  }
  const size_t offset = place->elements;
  place->elements += scalars;
  return {static_cast<size_t>(buckets.rend() - place) - 1, offset};
}

}  // namespace

ParameterShape MakeParameterShape(std::string name, std::span<const size_t> dimensions) {
  const TensorShape matrix = MatrixShape(dimensions);
  return {std::move(name), matrix.rows * matrix.cols, static_cast<int64_t>(dimensions.size()),
          matrix.rows, matrix.kernel};
}

std::string NameOfBucket(const PlannedBucket& bucket,
                         std::span<const ParameterShape> parameters) {
  const auto name = [&](size_t slot) { return parameters[bucket.slots[slot].parameter].name; };
  const size_t count = bucket.slots.size();
  if (count == 0) return "loss";
  if (count == 1) return name(0);
  if (count == 2) return name(0) + ", " + name(1);
  return name(0) + " ... " + name(count - 1) + ", " + std::to_string(count) + " tensors";
}

Result<BucketPlan> PlanBuckets(std::span<const ParameterShape> parameters,
                               const BucketPlanOptions& options) {
  if (parameters.empty()) return InvalidArgument("the model has no parameters to train");
  if (options.bucket_elements == 0) return InvalidArgument("a bucket must hold at least 1 KiB");
  EQ_ASSIGN_OR_RETURN(const std::vector<bool> exact, ChooseExact(parameters, options.exact));

  if (!options.groups.empty() && options.groups.size() != parameters.size()) {
    return InvalidArgument("there are groups for " + std::to_string(options.groups.size()) +
                           " of " + std::to_string(parameters.size()) + " parameters");
  }
  Planner planner(options.bucket_elements);
  for (size_t i = parameters.size(); i-- > 0;) {
    const size_t group = options.groups.empty() ? 0 : options.groups[i];
    planner.Add(i, parameters[i].elements, group, exact[i]);
  }
  BucketPlan plan{.buckets = planner.Finish(), .scalars = {}};
  plan.scalars = PlaceScalars(plan.buckets, options.scalars);
  for (PlannedBucket& bucket : plan.buckets) bucket.name = NameOfBucket(bucket, parameters);
  return plan;
}

std::vector<TensorShape> TensorsOf(const PlannedBucket& bucket,
                                   std::span<const ParameterShape> parameters) {
  std::vector<TensorShape> tensors;
  for (const BucketSlot& slot : bucket.slots) {
    const ParameterShape& p = parameters[slot.parameter];
    const size_t rows = p.dimensions < 2 || p.elements == 0 ? 1 : p.rows;
    tensors.push_back({rows, p.elements / rows, p.kernel});
  }
  return tensors;
}

}  // namespace elastiquant
