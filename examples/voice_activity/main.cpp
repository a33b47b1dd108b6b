// Streams audio through the voice detector silero-vad, as it would come from a microphone, and
// prints the segments in which somebody speaks. The model's state stays inside the program.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <rlx/rlx.hpp>

namespace {

constexpr int sample_rate = 16000;
constexpr std::size_t chunk_samples = 512, context_samples = 64;

/// Samples of a .wav file: 16 bits, one channel, 16 kHz.
rlx::Result<std::vector<float>> read_wav(const std::string& file) {
  const auto fails = [&](const std::string& why) {
    return rlx::Error{rlx::ErrorKind::bad_input, "The sound file (" + file + ") " + why + "."};
  };
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream),
                                std::istreambuf_iterator<char>()};
  const auto tag = [&](std::size_t at) { return std::string(bytes.data() + at, 4); };
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  if (bytes.size() < 44 || tag(0) != "RIFF" || tag(8) != "WAVE") return fails("is no .wav file");
  bool known = false;
  for (std::size_t at = 12; at + 8 <= bytes.size();) {
    const std::size_t size = number(at + 4, 4), begin = at + 8;
    const std::size_t end = std::min(bytes.size(), begin + size);
    if (tag(at) == "fmt " && end >= begin + 16) {
      known = number(begin, 2) == 1 && number(begin + 2, 2) == 1 &&
              number(begin + 4, 4) == sample_rate && number(begin + 14, 2) == 16;
    } else if (tag(at) == "data") {
      if (!known) break;
      std::vector<float> samples((end - begin) / 2);
      for (std::size_t i = 0; i < samples.size(); ++i)
        samples[i] = static_cast<std::int16_t>(number(begin + 2 * i, 2)) / 32768.0f;
      return samples;
    }
    at = begin + size + size % 2;
  }
  return fails("is not 16 bits, one channel, 16 kHz");
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
  const auto samples = read_wav(sound);
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
