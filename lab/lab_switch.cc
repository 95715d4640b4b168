// An Ethernet switch whose ports are slow, far away or share the air, as the kernel's netem and
// radios would have it, which not every kernel has. lab/netns.py runs it in place of a bridge.
//
//   lab_switch [--air RATE] [--link RATE ...] [--delay US] [--jitter US] [--loss PPM]
//              PORT PORT...
//
// A frame waits for its port's link, or for the air, which it has for itself while it is sent
// (medium.h); is held back for DELAY to DELAY + JITTER microseconds, but never overtakes
// another one; and waits for the link of the port that it leaves by. Of a million frames LOSS
// are lost, which are the same ones in every run. A RATE is bits a second, or @FILE with a
// trace of rates. Needs CAP_NET_RAW. Says "ready" on stdout when frames are being forwarded.

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lab/medium.h"

namespace {

using lab::Medium;
using lab::MediumOptions;
using lab::RateTrace;
using lab::Time;
using Address = std::array<char, ETH_ALEN>;

// A frame may be one that TCP left to the card to cut up and to checksum; the header before it
// says so, and handed on unchanged it tells the next card.
constexpr size_t kHeaderBytes =
    10;  // virtio_net_hdr, which <linux/virtio_net.h> has for C only
constexpr size_t kMaxBytes = kHeaderBytes + 14 + 65536;
// More than any queue that the ports may have, so that it is those which drop.
constexpr int kSocketBytes = 64 << 20;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "lab_switch: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int OpenPort(const char* name) {
  const unsigned index = if_nametoindex(name);
  if (index == 0) Die(name);
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("cannot open a packet socket");
  const int on = 1;
  packet_mreq all{};
  all.mr_ifindex = static_cast<int>(index);
  all.mr_type = PACKET_MR_PROMISC;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = all.mr_ifindex;
  const auto set = [&](int level, int option, const auto& value) {
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) Die(name);
  };
  set(SOL_PACKET, PACKET_VNET_HDR, on);
  set(SOL_PACKET, PACKET_IGNORE_OUTGOING, on);
  set(SOL_PACKET, PACKET_ADD_MEMBERSHIP, all);
  set(SOL_SOCKET, SO_SNDBUFFORCE, kSocketBytes);
  set(SOL_SOCKET, SO_RCVBUFFORCE, kSocketBytes);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Die(name);
  return fd;
}

struct SwitchOptions {
  std::string air;                 // its rate; empty: ports do not share any
  std::vector<std::string> links;  // rates: of all ports, or one for each
  int overhead = 0;                // MediumOptions::overhead of the air, in microseconds
  int window = 16;                 // MediumOptions::window of the air
  int crossings = 1;               // 2: by way of an access point, which sends a frame again
  int delay = 0, jitter = 0;       // microseconds
  int loss = 0;                    // of a million frames
  std::vector<std::string> ports;
};

RateTrace ParseRate(const std::string& text) {
  std::string lines = "1 " + text;
  if (text.starts_with('@')) {
    std::ifstream file(text.substr(1));
    if (!file) Die(text.c_str());
    lines.assign(std::istreambuf_iterator<char>(file), {});
  }
  RateTrace trace(1);
  const std::string wrong = RateTrace::Parse(lines, &trace);
  if (wrong.empty()) return trace;
  std::fprintf(stderr, "lab_switch: rate %s: %s\n", text.c_str(), wrong.c_str());
  std::exit(2);
}

struct Frame {
  size_t from;    // port
  int crossings;  // of the air, so far
  std::vector<char> bytes;

  size_t size() const { return bytes.size() - kHeaderBytes; }
  Address At(size_t offset) const {
    Address address;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(kHeaderBytes + offset), ETH_ALEN,
                address.begin());
    return address;
  }
  Address destination() const { return At(0); }
  Address source() const { return At(ETH_ALEN); }
};

class Switch {
 public:
  explicit Switch(const SwitchOptions& options) : options_(options) {
    for (const std::string& port : options.ports) {
      ports_.push_back({OpenPort(port.c_str()), POLLIN, 0});
    }
    if (!options.air.empty()) {
      MediumOptions air{.rate = ParseRate(options.air),
                        .overhead = std::chrono::microseconds(options.overhead),
                        .window = options.window};
      air_.emplace(air, ports_.size() + 1);
    }
    for (size_t port = 0; port < ports_.size() && !options.links.empty(); ++port) {
      const MediumOptions link{
          .rate = ParseRate(options.links[options.links.size() == 1 ? 0 : port])};
      up_.emplace_back(link, 1);
      down_.emplace_back(link, 1);
    }
  }

  [[noreturn]] void Run() {
    for (;;) {
      Wait();
      for (size_t port = 0; port < ports_.size(); ++port) {
        if (ports_[port].revents != 0) Receive(port);
      }
      HandOn(Now());
    }
  }

 private:
  struct Held {
    Time due;
    Frame frame;
  };

  Time Now() const { return std::chrono::steady_clock::now() - began_; }

  // What is due first of all that is under way.
  Time NextEvent() const {
    Time next = Time::max();
    const auto see = [&next](const Medium<Frame>& medium) {
      next = std::min(next, medium.next().value_or(Time::max()));
    };
    if (air_) see(*air_);
    for (const auto& link : up_) see(link);
    for (const auto& link : down_) see(link);
    return held_.empty() ? next : std::min(next, held_.front().due);
  }

  void Wait() {
    timespec left{3600, 0};
    const Time next = NextEvent();
    if (next < Time::max()) {
      const Time until = std::max(next - Now(), Time(0));
      left.tv_sec = until / std::chrono::seconds(1);
      left.tv_nsec = (until % std::chrono::seconds(1)).count();
    }
    if (ppoll(ports_.data(), ports_.size(), &left, nullptr) < 0 && errno != EINTR) Die("poll");
  }

  void Receive(size_t port) {
    for (;;) {
      const ssize_t size = recv(ports_[port].fd, buffer_.data(), buffer_.size(), 0);
      if (size < static_cast<ssize_t>(kHeaderBytes + 2 * ETH_ALEN)) return;
      Frame frame{port, 0, {buffer_.begin(), buffer_.begin() + size}};
      port_of_[frame.source()] = port;
      const size_t bytes = frame.size();
      // If this process was held up, events are overdue, in which a frame that has come only
      // now must have no part.
      const Time now = Now();
      HandOn(now);
      if (air_) {
        air_->Push(port, std::move(frame), bytes, now);
      } else if (!up_.empty()) {
        up_[port].Push(0, std::move(frame), bytes, now);
      } else {
        Hold(std::move(frame), now);
      }
    }
  }

  static bool IsDue(const Medium<Frame>& medium, Time now) {
    return medium.next().value_or(Time::max()) <= now;
  }

  // An access point sends again what it has heard, before anything else becomes of it.
  void HandOnAir(Time now) {
    while (IsDue(*air_, now)) {
      const Time end = *air_->next();
      std::optional<Frame> frame = air_->Pop();
      if (!frame) continue;
      const size_t bytes = frame->size();
      if (++frame->crossings < options_.crossings) {
        air_->Push(ports_.size(), std::move(*frame), bytes, end);
      } else {
        Hold(std::move(*frame), end);
      }
    }
  }

  // In the order of time over all links, as no frame is held for less long than one before it.
  void HandUp(Time until) {
    for (;;) {
      const auto first = std::ranges::min_element(
          up_, {}, [](const auto& link) { return link.next().value_or(Time::max()); });
      if (first == up_.end() || !IsDue(*first, until)) return;
      const Time end = *first->next();
      if (std::optional<Frame> frame = first->Pop()) Hold(std::move(*frame), end);
    }
  }

  void HandDown(Time until) {
    for (size_t port = 0; port < down_.size(); ++port) {
      while (IsDue(down_[port], until)) {
        if (const std::optional<Frame> frame = down_[port].Pop()) Send(port, *frame);
      }
    }
  }

  // Does all that is due. What is late does not make later what follows it.
  void HandOn(Time now) {
    if (air_) HandOnAir(now);
    HandUp(now);
    for (; !held_.empty() && held_.front().due <= now; held_.pop_front()) {
      // A link that was free before this frame was due must not send it in that time.
      HandDown(held_.front().due);
      Forward(std::move(held_.front().frame), held_.front().due);
    }
    HandDown(now);
  }

  void Hold(Frame frame, Time from) {
    if (std::uniform_int_distribution(1, 1000000)(random_) <= options_.loss) return;
    const int jitter = std::uniform_int_distribution(0, options_.jitter)(random_);
    const Time due = from + std::chrono::microseconds(options_.delay + jitter);
    held_.push_back({held_.empty() ? due : std::max(due, held_.back().due), std::move(frame)});
  }

  // To the port where its addressee was seen, otherwise to all.
  void Forward(Frame frame, Time now) {
    const size_t bytes = frame.size();
    const auto known = port_of_.find(frame.destination());
    for (size_t port = 0; port < ports_.size(); ++port) {
      if (port == frame.from || (known != port_of_.end() && known->second != port)) continue;
      if (down_.empty()) {
        Send(port, frame);
      } else {
        down_[port].Push(0, frame, bytes, now);
      }
    }
  }

  // What the port has no room for is lost, as in any switch.
  void Send(size_t port, const Frame& frame) {
    if (send(ports_[port].fd, frame.bytes.data(), frame.bytes.size(), 0) < 0 &&
        errno != ENOBUFS && errno != EAGAIN) {
      Die("cannot forward a frame");
    }
  }

  const SwitchOptions options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mt19937 random_;  // with its default seed
  std::vector<pollfd> ports_;
  std::map<Address, size_t> port_of_;
  std::optional<Medium<Frame>> air_;
  std::vector<Medium<Frame>> up_, down_;  // links, by port
  std::deque<Held> held_;                 // in the order that they are due
  std::vector<char> buffer_ = std::vector<char>(kMaxBytes);
};

}  // namespace

int main(int argc, char** argv) {
  SwitchOptions options;
  CLI::App app("A switch whose ports are slow, far away or share the air");
  app.add_option("--air", options.air, "Rate of the air that all ports share");
  app.add_option("--link", options.links, "Rate of the ports' links, one for all or for each")
      ->allow_extra_args(false);
  app.add_option("--overhead", options.overhead,
                 "Microseconds of air for a frame, beside its bytes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--window", options.window, "Slots of the contention window; 0: no collisions")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--crossings", options.crossings, "How often a frame crosses the air")
      ->check(CLI::Range(1, 2));
  app.add_option("--delay", options.delay, "Microseconds that a frame is held back")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--jitter", options.jitter, "Up to so many microseconds more")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--loss", options.loss, "Frames of a million that are lost")
      ->check(CLI::Range(0, 1000000));
  app.add_option("PORT", options.ports, "Network cards")->required();
  CLI11_PARSE(app, argc, argv);
  if (options.links.size() > 1 && options.links.size() != options.ports.size()) {
    return app.exit(CLI::ValidationError("--link", "is needed once, or once for each port"));
  }
  prctl(PR_SET_TIMERSLACK, 1000ul);  // ns: the kernel may otherwise add 50 us to every wait
  Switch lab_switch(options);
  std::puts("ready");
  std::fflush(stdout);
  lab_switch.Run();
}
