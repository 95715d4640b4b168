// What messages to the user call workers. In a group that has lost workers (net/crew/crew.h)
// ranks are no names: the third worker may be at rank 1.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace elastiquant {

class WorkerNames {
 public:
  // Each worker is called by its rank.
  WorkerNames() = default;
  // By rank, the number that the worker is called by.
  explicit WorkerNames(std::vector<int> numbers) : numbers_(std::move(numbers)) {}

  int number(int rank) const {
    return numbers_.empty() ? rank : numbers_[static_cast<size_t>(rank)];
  }
  // Returns text such as "worker 3".
  std::string operator()(int rank) const { return "worker " + std::to_string(number(rank)); }

 private:
  std::vector<int> numbers_;
};

}  // namespace elastiquant
