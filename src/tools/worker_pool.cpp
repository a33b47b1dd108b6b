// Child processes that take cases over sockets, one packet a message.
#include "tools/worker_pool.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace rlx::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_message = 16384;

std::string message_of(const Verdict& verdict) {
  std::string text = verdict.word + "\n" + verdict.reason;
  text.resize(std::min(text.size(), max_message));
  return text;
}

Verdict verdict_of(std::string_view message) {
  const std::size_t at = message.find('\n');
  return {std::string(message.substr(0, at)), std::string(message.substr(at + 1))};
}

// The life of a child: a case in, a verdict out, until the parent ends it.
[[noreturn]] void serve(int socket, const std::function<Verdict(std::size_t)>& judge) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::size_t index = 0;
  while (recv(socket, &index, sizeof index, 0) == sizeof index) {
    Verdict verdict;
    try {
      verdict = judge(index);
    } catch (const std::exception& exception) {
      verdict = {"ERROR", exception.what()};
    }
    const std::string message = message_of(verdict);
    if (send(socket, message.data(), message.size(), MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

std::string cause_of_death(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    return fmt::format("the process crashed: {}", name ? name : "unknown signal");
  }
  return fmt::format("the process ended with exit code {}", WEXITSTATUS(status));
}

// One child process, and the case that it works on.
class Worker {
 public:
  explicit Worker(const std::function<Verdict(std::size_t)>& judge) : judge_(&judge) {}
  Worker(const Worker&) = delete;
  Worker(Worker&& other) noexcept : judge_(other.judge_) { std::swap(pid_, other.pid_); }
  ~Worker() { stop(SIGKILL); }

  bool busy() const { return current_.has_value(); }
  std::size_t current() const { return *current_; }
  int socket() const { return socket_; }
  Clock::time_point deadline() const { return deadline_; }

  // False where no process can be had.
  bool give(std::size_t index, const PoolOptions& options) {
    // Killed, not asked: its siblings hold this end of its socket too, so closing it tells nothing.
    if (pid_ > 0 && served_ >= options.cases_per_process) stop(SIGKILL);
    if (pid_ < 0 && !start()) return false;
    ++served_;
    current_ = index;
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options.timeout_s));
    // A child that just died shows when its answer is awaited.
    send(socket_, &index, sizeof index, MSG_NOSIGNAL);
    return true;
  }

  // The answer, or how the child died instead.
  Verdict take() {
    current_.reset();
    std::string message(max_message, '\0');
    const ssize_t size = recv(socket_, message.data(), message.size(), 0);
    if (size > 0)
      return verdict_of(std::string_view(message).substr(0, static_cast<std::size_t>(size)));
    return {"ERROR", cause_of_death(stop(0))};
  }

  void give_up() {
    current_.reset();
    stop(SIGKILL);
  }

 private:
  bool start() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return false;
    std::fflush(stdout);
    pid_ = fork();
    if (pid_ == 0) {
      close(pair[0]);
      serve(pair[1], *judge_);
    }
    close(pair[1]);
    socket_ = pair[0];
    served_ = 0;
    if (pid_ < 0) close(std::exchange(socket_, -1));
    return pid_ > 0;
  }

  // Ends the child by a signal, or awaits its own end; gives its wait status.
  int stop(int signal) {
    if (pid_ <= 0) return 0;
    if (signal) kill(pid_, signal);
    close(std::exchange(socket_, -1));
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  const std::function<Verdict(std::size_t)>* judge_;
  pid_t pid_ = -1;
  int socket_ = -1;
  int served_ = 0;
  std::optional<std::size_t> current_;
  Clock::time_point deadline_;
};

// Waits until a worker answers or the earliest deadline passes.
void wait(const std::vector<Worker>& workers) {
  std::vector<pollfd> sockets;
  Clock::time_point earliest = Clock::time_point::max();
  for (const Worker& worker : workers) {
    if (!worker.busy()) continue;
    sockets.push_back({worker.socket(), POLLIN, 0});
    earliest = std::min(earliest, worker.deadline());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(earliest - Clock::now());
  poll(sockets.data(), sockets.size(),
       static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60000)));
}

bool has_answer(const Worker& worker) {
  pollfd socket{worker.socket(), POLLIN, 0};
  return poll(&socket, 1, 0) > 0;
}

}  // namespace

void judge_isolated(std::size_t count, const PoolOptions& options,
                    const std::function<Verdict(std::size_t)>& judge,
                    const std::function<void(std::size_t, const Verdict&)>& report) {
  std::vector<Worker> workers;
  for (int i = 0; i < options.jobs; ++i) workers.emplace_back(judge);
  std::vector<std::optional<Verdict>> verdicts(count);
  std::size_t next = 0, reported = 0;
  while (reported < count) {
    for (Worker& worker : workers) {
      if (worker.busy() || next == count) continue;
      const std::size_t index = next++;
      if (!worker.give(index, options)) verdicts[index] = {"ERROR", "no process could be started"};
    }
    if (std::any_of(workers.begin(), workers.end(), [](const Worker& w) { return w.busy(); })) {
      wait(workers);
    }
    for (Worker& worker : workers) {
      if (!worker.busy()) continue;
      const std::size_t index = worker.current();
      if (has_answer(worker)) {
        verdicts[index] = worker.take();
      } else if (Clock::now() >= worker.deadline()) {
        worker.give_up();
        verdicts[index] = {"ERROR", fmt::format("no answer after {} s", options.timeout_s)};
      }
    }
    for (; reported < count && verdicts[reported]; ++reported) {
      report(reported, *verdicts[reported]);
    }
  }
}

}  // namespace rlx::tools
