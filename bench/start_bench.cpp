// What a program costs until its first result: processes that load, compile and run once, with an
// empty code cache and with a full one. Times count from before the process is made.
//
// usage: start_bench [--rounds N] [--cold] [--threads N] FILE[:DIM=N,...] ...
// FILE is an .onnx file or a saved program. The cache is a folder of its own for each file.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Figures {
  double loaded_ms = 0, ready_ms = 0, first_run_ms = 0, peak_mb = 0;
};

double since(Clock::rep begin) {
  const Clock::duration time(Clock::now().time_since_epoch().count() - begin);
  return std::chrono::duration<double, std::milli>(time).count();
}

template <class T>
T or_end(rlx::Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::_Exit(1);
}

rlx::CompiledGraph program_of(rlx::Session& session, const std::string& spec, Clock::rep begin,
                              double& loaded_ms) {
  const std::string file = spec.substr(0, spec.find(':'));
  if (rlx::is_saved_program(file)) {
    loaded_ms = since(begin);
    return or_end(session.load(file));
  }
  const rlx::Graph graph = or_end(rlx::import_onnx(file));
  loaded_ms = since(begin);
  rlx::CompileOptions options;
  for (std::size_t at = spec.find(':'); at != std::string::npos;) {
    const std::size_t equal = spec.find('=', at), end = spec.find(',', at + 1);
    if (equal == std::string::npos) break;
    options.dims[spec.substr(at + 1, equal - at - 1)] = std::atoll(spec.c_str() + equal + 1);
    at = end;
  }
  return or_end(session.compile(graph, options));
}

/// ru_maxrss would begin with what the parent holds.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) * 1.024e-3;
  }
  return 0;
}

/// The child: writes its figures to standard output.
int measure_one(const std::string& spec, Clock::rep begin, int threads) {
  Figures figures;
  rlx::SessionOptions options;
  options.threads = threads;
  rlx::Session session(rlx::Device::cpu, options);
  rlx::CompiledGraph program = program_of(session, spec, begin, figures.loaded_ms);
  figures.ready_ms = since(begin);
  std::vector<rlx::Tensor> inputs;
  std::vector<const void*> slots;
  for (const rlx::IoInfo& input : program.inputs()) {
    rlx::Dims dims = input.dims;
    for (auto& dim : dims) dim = std::max<std::int64_t>(dim, 1);
    inputs.emplace_back(input.dtype, dims);
    slots.push_back(inputs.back().data());
  }
  if (!program.run_slots(slots).ok()) {
    std::vector<rlx::NamedInput> named;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      named.emplace_back(program.inputs()[i].name, inputs[i]);
    or_end(program.run(named));
  }
  figures.first_run_ms = since(begin);
  figures.peak_mb = peak_mb();
  return std::fwrite(&figures, sizeof(figures), 1, stdout) == 1 ? 0 : 1;
}

bool spawn(const std::string& spec, const std::string& threads, Figures& figures) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const std::string begin = std::to_string(Clock::now().time_since_epoch().count());
  const pid_t child = vfork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl("/proc/self/exe", "start_bench", "--child", begin.c_str(), threads.c_str(), spec.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  const bool read_all = read(ends[0], &figures, sizeof(figures)) == sizeof(figures);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return read_all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const std::string& spec, int rounds, bool cold, const std::string& threads) {
  namespace fs = std::filesystem;
  char folder[] = "/tmp/rlx-start-XXXXXX";
  if (!mkdtemp(folder)) return;
  setenv("RLX_CACHE_DIR", folder, 1);
  std::vector<double> loaded, ready, first, peak;
  for (int round = cold ? 0 : -1; round < rounds; ++round) {
    Figures figures;
    // A folder for each cold round, all removed at the end: file systems are slow to make files
    // where others were just deleted.
    if (cold)
      setenv("RLX_CACHE_DIR", (std::string(folder) + "/" + std::to_string(round)).c_str(), 1);
    if (!spawn(spec, threads, figures)) break;
    if (round < 0) continue;
    loaded.push_back(figures.loaded_ms), ready.push_back(figures.ready_ms);
    first.push_back(figures.first_run_ms), peak.push_back(figures.peak_mb);
  }
  fs::remove_all(folder);
  const std::string name = spec.size() > 48 ? spec.substr(spec.size() - 48) : spec;
  if (first.empty()) return (void)std::printf("%-48s failed\n", name.c_str());
  std::printf(
      "%-48s loaded %7.2f ms, ready %7.2f, first result %7.2f (least %7.2f), peak %6.1f MB\n",
      name.c_str(), median(loaded), median(ready), median(first), *std::ranges::min_element(first),
      median(peak));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 5 && std::strcmp(arguments[1], "--child") == 0)
    return measure_one(arguments[4], std::atoll(arguments[2]), std::atoi(arguments[3]));
  int rounds = 9;
  bool cold = false;
  std::string threads = "0";
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--cold") {
      cold = true;
    } else if (argument == "--rounds" && i + 1 < count) {
      rounds = std::atoi(arguments[++i]);
    } else if (argument == "--threads" && i + 1 < count) {
      threads = arguments[++i];
    } else {
      measure(argument, rounds, cold, threads);
    }
  }
}
