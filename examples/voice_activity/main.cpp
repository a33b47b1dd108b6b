// Streams audio through the voice detector silero-vad, as it would come from a microphone, and
// prints the segments in which somebody speaks. The model's state stays inside the program.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <rlx/rlx.hpp>

namespace {

constexpr int sample_rate = 16000;
constexpr std::size_t chunk_samples = 512, context_samples = 64;

/// The first channel of a .wav file, at 16 kHz.
rlx::Result<std::vector<float>> read_samples(const std::string& file) {
  const auto sound = rlx::read_wav(file, sample_rate);
  if (!sound.ok()) return sound.error();
  const auto first =
      sound->samples.as<float>().first(static_cast<std::size_t>(sound->samples.dims()[1]));
  return std::vector<float>(first.begin(), first.end());
}

/// The detector as a program that keeps its state from chunk to chunk.
rlx::Result<rlx::CompiledGraph> make_detector(const std::string& model) {
  rlx::ImportOptions import;
  import.input_dims = {
      {"input", {1, chunk_samples + context_samples}}, {"state", {2, 1, 128}}, {"sr", {}}};
  auto graph = rlx::import_onnx(model, import);
  if (!graph.ok()) return graph.error();
  rlx::Session session(rlx::Device::cpu);
  return session.compile(*graph, rlx::CompileOptions().feed("stateN", "state"));
}

/// Speech begins at one probability and ends below another for a while.
class Segments {
 public:
  void take(double at, float probability) {
    constexpr float begins = 0.5f, ends = 0.35f;
    constexpr double silence = 0.2;
    if (probability >= begins) {
      if (!speaks_) begin_ = at;
      speaks_ = true;
    }
    if (probability >= ends) last_ = at + static_cast<double>(chunk_samples) / sample_rate;
    if (speaks_ && at - last_ > silence) finish();
  }
  void finish() {
    if (speaks_) std::printf("%7.2f s - %7.2f s\n", begin_, last_);
    std::fflush(stdout);
    speaks_ = false;
  }

 private:
  bool speaks_ = false;
  double begin_ = 0, last_ = 0;
};

rlx::Status listen(const std::string& model, const std::string& sound, bool in_real_time) {
  auto detector = make_detector(model);
  if (!detector.ok()) return detector.error();
  const auto samples = read_samples(sound);
  if (!samples.ok()) return samples.error();
  std::array<float, context_samples + chunk_samples> input{};
  const std::int64_t rate = sample_rate;
  float probability = 0;
  const std::array<const void*, 2> slots{input.data(), &rate};
  const std::array<void*, 1> results{&probability};
  Segments segments;
  std::chrono::nanoseconds busy{0};
  const auto start = std::chrono::steady_clock::now();
  std::size_t chunks = 0;
  for (std::size_t at = 0; at + chunk_samples <= samples->size(); at += chunk_samples, ++chunks) {
    const double seconds = static_cast<double>(at) / sample_rate;
    if (in_real_time) std::this_thread::sleep_until(start + std::chrono::duration<double>(seconds));
    // The model sees the end of the chunk before, too.
    std::copy(input.end() - context_samples, input.end(), input.begin());
    std::copy_n(samples->begin() + static_cast<std::ptrdiff_t>(at), chunk_samples,
                input.begin() + context_samples);
    const auto before = std::chrono::steady_clock::now();
    const rlx::Status status = detector->run_into(slots, results);
    if (!status.ok()) return status;
    busy += std::chrono::steady_clock::now() - before;
    segments.take(seconds, probability);
  }
  segments.finish();
  std::fprintf(stderr, "%zu chunks of 32 ms, %.1f us each\n", chunks,
               static_cast<double>(busy.count()) * 1e-3 /
                   static_cast<double>(std::max<std::size_t>(chunks, 1)));
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  const bool in_real_time = count == 4 && std::string(arguments[3]) == "--real-time";
  if (count != 3 && !in_real_time) {
    std::fprintf(stderr, "usage: voice_activity MODEL.onnx SOUND.wav [--real-time]\n");
    return 2;
  }
  const rlx::Status status = listen(arguments[1], arguments[2], in_real_time);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 3;
}
