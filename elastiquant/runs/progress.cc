#include "elastiquant/runs/progress.h"

#include <fmt/format.h>

#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>

namespace elastiquant {
namespace {

constexpr int kBarCells = 20;
constexpr double kSmoothing = 0.05;  // the weight of the newest step
constexpr std::chrono::milliseconds kRedraw{200};

// Bits that fp32 would have sent for each one sent.
double Compression(double bytes_up, int64_t coordinates, int world_size) {
  if (bytes_up <= 0) return 1;
  return 4.0 * static_cast<double>(coordinates) * 2 * (world_size - 1) / world_size / bytes_up;
}

// The columns of the terminal that `file` is; a line that wraps could not be redrawn.
size_t Columns(std::FILE* file) {
  winsize size{};
  const bool known = ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 1000;
}

}  // namespace

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

void Progress::Step(const StepRecord& record) {
  if (!options_.live) return;
  const auto smooth = [&](double& value, double newest) {
    if (std::isfinite(newest)) value = any_ ? value + kSmoothing * (newest - value) : newest;
  };
  smooth(smooth_loss_, record.loss);
  smooth(smooth_accuracy_, record.accuracy);
  smooth(smooth_seconds_, record.seconds.total);
  smooth(smooth_bytes_, static_cast<double>(record.bytes_up));
  any_ = true;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedraw && record.step < options_.total_steps) return;
  drawn_ = now;
  // \r and "erase to the end of the line", so that a shorter line leaves nothing behind.
  Write("\r" + Line(record).substr(0, Columns(options_.out)) + "\x1b[K");
  bar_shown_ = true;
}

std::string Progress::Line(const StepRecord& record) const {
  const int64_t total = std::max<int64_t>(options_.total_steps, 1);
  const auto cells = static_cast<int>(kBarCells * std::min(record.step, total) / total);
  const std::string bar = std::string(static_cast<size_t>(cells), '#') +
                          std::string(static_cast<size_t>(kBarCells - cells), '.');
  const double per_step = std::max(smooth_seconds_, 1e-9);
  std::string line =
      fmt::format("epoch {} [{}] {}/{} loss {:.3f} acc {:.1f} % {:.0f} images/s", record.epoch,
                  bar, record.step, total, smooth_loss_, smooth_accuracy_,
                  static_cast<double>(record.images) / per_step);
  if (options_.world_size > 1) {
    line += fmt::format(" {:.2f} Mbit/s {:.1f}x", 8e-6 * smooth_bytes_ / per_step,
                        Compression(smooth_bytes_, options_.coordinates, options_.world_size));
  }
  return line + " ETA " + FormatDuration(static_cast<double>(total - record.step) * per_step);
}

void Progress::Epoch(int64_t epoch, const StepTotals& totals, double test_accuracy) {
  ClearBar();
  const auto steps = static_cast<double>(std::max<int64_t>(totals.steps, 1));
  const auto used = static_cast<double>(std::max<int64_t>(totals.steps - totals.skipped, 1));
  std::string line = fmt::format("epoch {}: ", epoch);
  // Devices that are emulated compute no loss.
  if (!std::isnan(totals.loss)) line += fmt::format("loss {:.4f}, ", totals.loss / used);
  if (std::isfinite(test_accuracy))
    line += fmt::format("test accuracy {:.2f} %, ", test_accuracy);
  line += fmt::format("{:.0f} images/s, {:.4f} s/step",
                      static_cast<double>(totals.images) / std::max(totals.seconds.total, 1e-9),
                      totals.seconds.total / steps);
  if (options_.world_size > 1) {
    const double bytes = static_cast<double>(totals.bytes_up) / steps;
    line += fmt::format(" (wait {:.4f}), {:.1f} kB up a step ({:.1f}x)",
                        totals.seconds.wait / steps, bytes / 1000,
                        Compression(bytes, options_.coordinates, options_.world_size));
  }
  if (totals.skipped > 0) line += fmt::format(", {} steps skipped", totals.skipped);
  Write(line + "\n");
}

void Progress::Note(const std::string& text) {
  ClearBar();
  Write(text + "\n");
}

void Progress::ClearBar() {
  if (bar_shown_) Write("\r\x1b[K");
  bar_shown_ = false;
}

// A run goes on if its words cannot be written, as to a log on a full disk.
void Progress::Write(const std::string& text) {
  std::fputs(text.c_str(), options_.out);
  std::fflush(options_.out);
}

}  // namespace elastiquant
