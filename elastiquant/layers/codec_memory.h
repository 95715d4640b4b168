// Brings what the codecs of a run remember on one worker to and from that worker's checkpoint.
// It is kept by parameter, so that it outlives a change of bucket size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/layers/sections.h"

namespace elastiquant {

// For each field that a bucket's codec remembers (Codec::StateFields()) and each of the
// bucket's parameters there are two sections:
//   "memory/FIELD/PARAMETER"       what the worker's own gradient lost;
//   "mean-memory/FIELD/PARAMETER"  what the mean lost, zero where others own it.
// A coordinate that changes its owner with the layout takes its memory along. To make up for
// what a mean of N workers lost, one of them must send N times as much, and a worker whose
// weight in the mean is w must send 1 / w times as much.
class CodecMemory {
 public:
  // Adds the sections of an empty memory, for one parameter whose codec remembers these fields.
  static void SaveEmpty(const ParameterShape& shape, std::span<const std::string> fields,
                        Sections* sections);
  // Checks the sections of that parameter. Fails with CorruptData, which names the first
  // section that is missing or has another size.
  static Status Check(const ParameterShape& shape, std::span<const std::string> fields,
                      const Sections& sections);

  // `fields` is by bucket, and `weight` is what this worker counts in the mean, from 0 to 1.
  // `plan`, `shapes` and `reducer` must outlive it.
  CodecMemory(const BucketPlan& plan, std::span<const ParameterShape> shapes,
              std::vector<std::vector<std::string>> fields, double weight,
              GradientReducer* reducer);

  // Adds the sections of all parameters.
  void Save(Sections* sections) const;
  // Checks the sections of all parameters, as Check does.
  Status CheckAll(const Sections& sections) const;
  // Makes the memory what the sections say. Fails as Check does, before anything is changed.
  Status Load(const Sections& sections);

  // Converts what is remembered of one parameter to a new unit of its gradient: residuals and
  // velocities are multiplied by the factor. Bases have no unit.
  void Rescale(size_t parameter, double factor);
  // Copy returns all fields of one parameter, one behind the other. PutBack makes the memory
  // what the copy says.
  std::vector<float> Copy(size_t parameter) const;
  void PutBack(size_t parameter, std::span<const float> copy);

 private:
  struct Place {
    size_t bucket = 0, offset = 0;
  };
  // Calls fn(name of the field, the parameter's values in it).
  template <typename Fn>
  void ForEachField(size_t parameter, const Fn& fn) const;

  const BucketPlan& plan_;
  std::span<const ParameterShape> shapes_;
  const std::vector<std::vector<std::string>> fields_;
  const float workers_;  // that make up a mean if all count as much as this one: 1 / weight
  GradientReducer* const reducer_;
  std::map<size_t, Place> places_;  // by parameter
};

}  // namespace elastiquant
