#include "elastiquant/c10d/tcp_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/version.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "elastiquant/c10d/torch_error.h"
#include "elastiquant/net/call_within.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};  // how often a key that is waited for is looked for

std::vector<uint8_t> ToBytes(const std::string& s) { return {s.begin(), s.end()}; }
std::string ToString(const std::vector<uint8_t>& b) { return {b.begin(), b.end()}; }
std::string Endpoint(const std::string& host, uint16_t port) {
  return host + ":" + std::to_string(port);
}

class TorchStore final : public Store {
 public:
  TorchStore(const std::string& host, uint16_t port, std::string prefix, milliseconds timeout)
      : prefix_(std::move(prefix)), store_(host, Options(port, timeout)) {}

  void SetPatience(milliseconds patience) override { store_.setTimeout(patience); }
  Status Set(const std::string& key, const std::string& value) override {
    return Try([&] { store_.set(prefix_ + key, ToBytes(value)); });
  }
  Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) override {
    std::vector<std::string> values;
    EQ_RETURN_IF_ERROR(Try([&] {
      for (const std::vector<uint8_t>& v : store_.multiGet(Prefixed(keys))) {
        values.push_back(ToString(v));
      }
    }));
    return values;
  }
  Result<bool> Exists(const std::string& key) override {
    bool exists = false;
    EQ_RETURN_IF_ERROR(Try([&] { exists = store_.check({prefix_ + key}); }));
    return exists;
  }
  Result<int64_t> Increment(const std::string& key) override {
    int64_t count = 0;
    EQ_RETURN_IF_ERROR(Try([&] { count = store_.add(prefix_ + key, 1); }));
    return count;
  }
  Result<std::string> CompareSet(const std::string& key, const std::string& expected,
                                 const std::string& desired) override {
    std::string value;
    EQ_RETURN_IF_ERROR(Try([&] {
      value = ToString(store_.compareSet(prefix_ + key, ToBytes(expected), ToBytes(desired)));
    }));
    return value;
  }
  // c10d can wait too, but logs a warning when the time is up, and that is our ordinary case.
  Result<bool> WaitFor(const std::vector<std::string>& keys, milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      bool exist = false;
      EQ_RETURN_IF_ERROR(Try([&] { exist = store_.check(Prefixed(keys)); }));
      if (exist || std::chrono::steady_clock::now() >= deadline) return exist;
      std::this_thread::sleep_for(kLook);
    }
  }

 private:
  static c10d::TCPStoreOptions Options(uint16_t port, milliseconds timeout) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.timeout = timeout;
    options.waitWorkers = false;
    return options;
  }
  static Status Try(const auto& call) {
    try {
      call();
    } catch (const std::exception& e) {
      return Unavailable("the rendezvous store failed: " + Words(e));
    }
    return {};
  }
  std::vector<std::string> Prefixed(const std::vector<std::string>& keys) const {
    std::vector<std::string> out;
    for (const std::string& key : keys) out.push_back(prefix_ + key);
    return out;
  }
  std::string prefix_;
  c10d::TCPStore store_;
};

// A listening IPv4 socket, or -1 with errno set. Not left to c10d, which would listen on IPv6
// as well and then look up the name of every IPv4 client in a form (::ffff:127.0.0.1) that no
// hosts file has: without a good name server that stalls the store for seconds.
int ListenOn(uint16_t port, Reach reach) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(reach == Reach::kThisMachine ? INADDR_LOOPBACK : INADDR_ANY);
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

class TorchStoreHost final : public StoreHost {
 public:
  explicit TorchStoreHost(int listening) : store_("127.0.0.1", Options(listening)) {}
  uint16_t port() const override { return store_.getPort(); }

 private:
  static c10d::TCPStoreOptions Options(int listening) {
    c10d::TCPStoreOptions options;
    options.port = PortOf(listening);
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listening;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 7
    options.useLibUV = false;  // which of torch 2.4 takes no socket that listens already
#endif
    return options;
  }
  c10d::TCPStore store_;
};

// Whether something accepts a connection to this address at once.
bool Accepts(const addrinfo& address, milliseconds timeout) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool accepts = connect(fd, address.ai_addr, address.ai_addrlen) == 0;
  if (!accepts && errno == EINPROGRESS) {
    pollfd waiting{fd, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof(error);
    accepts = poll(&waiting, 1, static_cast<int>(timeout.count())) == 1 &&
              getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  close(fd);
  return accepts;
}

// Why nothing listens there, as far as the address tells. Another's store, such as torchrun's,
// may listen on IPv6 as well.
std::string AdviceFor(const std::string& host) {
  in6_addr address{};
  if (inet_pton(AF_INET6, host.c_str(), &address) == 1) {
    return "worker 0 listens on IPv4 alone: give its IPv4 address, or its name";
  }
  return "is worker 0 running, and the address right?";
}

// Returns when something listens there. c10d would wait as well, but noisily.
Status AwaitListener(const std::string& host, uint16_t port, milliseconds timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return Unavailable("the host \"" + host +
                       "\" of the rendezvous store is unknown: " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (Accepts(*a, timeout)) return {};
    }
    std::this_thread::sleep_for(kLook);
  } while (std::chrono::steady_clock::now() < deadline);
  return Unavailable("no rendezvous store at " + Endpoint(host, port) + " within " +
                     std::to_string(timeout.count() / 1000) + " s: " + AdviceFor(host));
}

}  // namespace

void KeepTorchQuiet() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

void WaitBrieflyForNames() { setenv("RES_OPTIONS", "timeout:1 attempts:2", /*overwrite=*/0); }

// c10d waits without limit for the first answer of whatever listens at the port, so a thread
// tries, which is left behind if it gets none.
Result<std::unique_ptr<Store>> ConnectTcpStore(const std::string& host, uint16_t port,
                                               const std::string& prefix,
                                               milliseconds timeout) {
  EQ_RETURN_IF_ERROR(AwaitListener(host, port, timeout));
  auto store = CallWithin(timeout, [=]() -> Result<std::unique_ptr<Store>> {
    try {
      return std::unique_ptr<Store>(std::make_unique<TorchStore>(host, port, prefix, timeout));
    } catch (const std::exception& e) {
      return Unavailable("the rendezvous store at " + Endpoint(host, port) +
                         " cannot be reached: " + Words(e));
    }
  });
  if (store) return std::move(*store);
  return Unavailable("what listens at " + Endpoint(host, port) +
                     " does not answer as a rendezvous store: is it another program's port?");
}

Result<std::unique_ptr<StoreHost>> HostTcpStore(uint16_t port, Reach reach) {
  const std::string name = "port " + std::to_string(port);
  const int fd = ListenOn(port, reach);
  if (fd < 0 && errno == EADDRINUSE) {
    return Unavailable(name +
                       " is in use on this machine: choose another, or end the program "
                       "that listens there (perhaps an earlier run)");
  }
  if (fd < 0) return IoError("cannot listen on " + name + ": " + std::strerror(errno));
  try {
    return std::unique_ptr<StoreHost>(std::make_unique<TorchStoreHost>(fd));
  } catch (const std::exception& e) {
    return IoError("cannot serve a rendezvous store on " + name + ": " + Words(e));
  }
}

}  // namespace elastiquant
