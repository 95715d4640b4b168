// The key-value store where the workers of a job meet. Its errors are values.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// One connection to the store. It is thread-safe, but calls wait for each other, and for ever
// if the store's process is frozen: only a thread that others watch may call it.
class Store {
 public:
  virtual ~Store() = default;

  // Sets how long the store may be silent before it counts as lost. At first that is the
  // timeout for connecting.
  virtual void SetPatience(std::chrono::milliseconds patience) = 0;

  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // Returns the values of keys that must all exist already.
  virtual Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) = 0;
  virtual Result<bool> Exists(const std::string& key) = 0;
  // Adds 1 to a counter, which is 0 at first, and returns its new value.
  virtual Result<int64_t> Increment(const std::string& key) = 0;
  // Sets the key to `desired` if its value is `expected`, and returns the value that it has
  // then. "" also stands for a missing key.
  virtual Result<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) = 0;
  // Returns whether all keys came to exist within the time.
  virtual Result<bool> WaitFor(const std::vector<std::string>& keys,
                               std::chrono::milliseconds timeout) = 0;
};

// From where a store can be reached. With kThisMachine others cannot even connect.
enum class Reach { kThisMachine, kAnywhere };
// Returns from where a store must be reachable if its address is `host`.
inline Reach ReachOf(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" ? Reach::kThisMachine : Reach::kAnywhere;
}

// The store itself, which ends when this is destroyed. It is hosted by a launcher, which
// outlives all workers, or else by worker 0, which leaves when no other worker needs it.
class StoreHost {
 public:
  virtual ~StoreHost() = default;
  // Returns the port that it listens at.
  virtual uint16_t port() const = 0;
};

}  // namespace elastiquant
