// The key-value store where the workers of a job meet, with errors as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// One connection to the store. Thread-safe; calls wait for each other, and for ever on a store
// whose process is frozen: only a thread that others watch may call.
class Store {
 public:
  virtual ~Store() = default;

  // How long the store may be silent before it counts as lost; the time-out for connecting at
  // first.
  virtual void SetPatience(std::chrono::milliseconds patience) = 0;

  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // The values of keys that all exist already.
  virtual Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) = 0;
  virtual Result<bool> Exists(const std::string& key) = 0;
  // Adds 1 to a counter, 0 at first, and returns what it is then.
  virtual Result<int64_t> Increment(const std::string& key) = 0;
  // Sets the key if its value is `expected` ("" also for a missing key); returns its value
  // then.
  virtual Result<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) = 0;
  // Whether all keys came to exist within the time.
  virtual Result<bool> WaitFor(const std::vector<std::string>& keys,
                               std::chrono::milliseconds timeout) = 0;
};

// From where a store can be reached: kThisMachine means that others cannot even connect.
enum class Reach { kThisMachine, kAnywhere };

// The store itself. A launcher that hosts it outlives any worker; otherwise rank 0 does.
class StoreHost {
 public:
  virtual ~StoreHost() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace elastiquant
