// The log-mel features that Whisper hears, of a .wav file: as .npy and as a picture.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <rlx/rlx.hpp>
#include <rlx/signal.hpp>

#include "picture/picture.hpp"

namespace {

using rlx::picture::Align;
using rlx::picture::Colour;
using rlx::picture::Picture;

constexpr std::int64_t sample_rate = 16000, n_fft = 400, hop = 160;
constexpr double hop_s = static_cast<double>(hop) / sample_rate;

struct Options {
  std::string sound, features = "features.npy", picture = "features.png";
  std::int64_t mels = 80;
  bool thirty_seconds = false;
};

/// [n_mels, frames] of a sound [channels, T].
rlx::Tensor features_of(const rlx::Tensor& samples, const Options& options) {
  rlx::Graph graph;
  const rlx::Value sound = graph.input("sound", rlx::f32, {samples.dims()[0], samples.dims()[1]});
  rlx::Value mono = rlx::mean(sound, {0});
  const std::int64_t window = 30 * sample_rate;
  if (options.thirty_seconds) mono = rlx::pad(mono, {0}, {window - samples.dims()[1]});
  const rlx::Tensor filters =
      rlx::mel_filters({.sample_rate = sample_rate, .n_fft = n_fft, .n_mels = options.mels});
  const rlx::Value levels =
      rlx::log_mel_features(mono, rlx::cast(graph.constant(filters), rlx::f32), n_fft, hop);
  graph.output("features", rlx::transpose(levels, {1, 0}));
  auto program = rlx::Session(rlx::Device::cpu).compile(graph).value();
  return program.run({{"sound", samples}}).value()["features"];
}

/// The frequency at which filter `band` is highest: slaney's scale from 0 to half the rate.
double centre_hz(std::int64_t band, std::int64_t mels) {
  const double highest = 15 + std::log(sample_rate / 2 / 1000.0) * 27 / std::log(6.4);
  const double mel = highest * static_cast<double>(band + 1) / static_cast<double>(mels + 1);
  return mel < 15 ? mel * 200 / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

constexpr Colour ink{40, 44, 52}, paper{255, 255, 255}, faint{150, 156, 168};
constexpr int left = 110, top = 60, right = 150, bottom = 80, band_height = 5;

void draw_time_axis(Picture& page, int width, int height, double seconds) {
  const double step = rlx::picture::tick_step(seconds, 10);
  for (double t = 0; t <= seconds + 1e-9; t += step) {
    const int x = left + static_cast<int>(std::lround(t / seconds * (width - 1)));
    page.rectangle(x, top + height, 1, 8, ink);
    page.text(x, top + height + 14, rlx::picture::number(t), ink, 2, Align::middle);
  }
  page.text(left + width / 2, top + height + 44, "time (s)", ink, 2, Align::middle);
}

void draw_band_axis(Picture& page, int height, std::int64_t mels) {
  for (const double hz : {250.0, 500.0, 1000.0, 2000.0, 4000.0, 7000.0}) {
    std::int64_t nearest = 0;
    for (std::int64_t band = 0; band < mels; ++band) {
      if (std::abs(centre_hz(band, mels) - hz) < std::abs(centre_hz(nearest, mels) - hz))
        nearest = band;
    }
    const int y = top + height - 1 - static_cast<int>(nearest) * band_height - band_height / 2;
    page.rectangle(left - 8, y, 8, 1, ink);
    page.text(left - 14, y - 7, rlx::picture::number(hz), ink, 2, Align::right);
  }
  page.vertical_text(14, top + height / 2, "mel band centre (Hz)", ink);
}

void draw_scale(Picture& page, int x, int height, double low, double high) {
  constexpr int width = 20;
  for (int j = 0; j < height; ++j) {
    const double share = 1 - static_cast<double>(j) / (height - 1);
    page.rectangle(x, top + j, width, 1, rlx::picture::heat(share));
  }
  page.frame(x - 1, top - 1, width + 2, height + 2, ink);
  const double step = rlx::picture::tick_step(high - low, 6);
  for (double v = std::ceil(low / step) * step; v <= high + 1e-9; v += step) {
    const int y = top + static_cast<int>(std::lround((high - v) / (high - low) * (height - 1)));
    page.rectangle(x + width, y, 6, 1, ink);
    page.text(x + width + 10, y - 7, rlx::picture::number(v), ink);
  }
  page.vertical_text(x + 86, top + height / 2, "(log10 power + 4) / 4", ink);
}

bool draw(const rlx::Tensor& features, const Options& options) {
  const std::int64_t mels = features.dims()[0], frames = features.dims()[1];
  const int width = static_cast<int>(std::clamp<std::int64_t>(frames, 700, 1400));
  const int height = static_cast<int>(mels) * band_height;
  const auto values = features.as<float>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, high = std::max(static_cast<double>(*most), low + 1e-6);
  Picture page(left + width + right, top + height + bottom, paper);
  for (int x = 0; x < width; ++x) {
    // A column shows the loudest of the frames that it stands for.
    const std::int64_t first = x * frames / width;
    const std::int64_t last = std::max(first + 1, (x + 1) * frames / width);
    for (std::int64_t band = 0; band < mels; ++band) {
      const float* row = values.data() + band * frames;
      const double value = *std::max_element(row + first, row + last);
      page.rectangle(left + x, top + height - static_cast<int>(band + 1) * band_height, 1,
                     band_height, rlx::picture::heat((value - low) / (high - low)));
    }
  }
  page.frame(left - 1, top - 1, width + 2, height + 2, ink);
  page.text(left, 14, "Log-mel features", ink, 3);
  page.text(left + 320, 22,
            std::to_string(mels) + " bands, " + std::to_string(frames) + " frames of " +
                rlx::picture::number(hop_s * 1000) + " ms",
            faint);
  draw_time_axis(page, width, height, static_cast<double>(frames) * hop_s);
  draw_band_axis(page, height, mels);
  draw_scale(page, left + width + 24, height, low, high);
  return page.write_png(options.picture);
}

int run(const Options& options) {
  const auto fails = [](const std::string& why) {
    std::fprintf(stderr, "speech_features: %s\n", why.c_str());
    return 3;
  };
  const auto sound = rlx::read_wav(options.sound, sample_rate);
  if (!sound.ok()) return fails(sound.error().message);
  const std::int64_t samples = sound->samples.dims()[1];
  if (samples < n_fft || samples > 3600 * sample_rate)
    return fails("The sound (" + options.sound + ") is shorter than a frame or over an hour.");
  const rlx::Tensor features = features_of(sound->samples, options);
  const rlx::Status written = rlx::write_npy(options.features, features);
  if (!written.ok()) return fails(written.error().message);
  if (!draw(features, options))
    return fails("The picture (" + options.picture + ") cannot be written.");
  std::printf("%.2f s of sound: %lld bands x %lld frames in %s, picture in %s\n",
              static_cast<double>(samples) / sample_rate,
              static_cast<long long>(features.dims()[0]),
              static_cast<long long>(features.dims()[1]), options.features.c_str(),
              options.picture.c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  CLI::App app("Writes the log-mel features that Whisper hears.");
  app.add_option("SOUND", options.sound, "A .wav file of any rate")->required();
  app.add_option("--features", options.features, "The .npy file, f32 [bands, frames]");
  app.add_option("--picture", options.picture, "The .png file");
  app.add_option("--bands", options.mels, "Mel bands")->check(CLI::Range(16, 128));
  app.add_flag("--thirty-seconds", options.thirty_seconds, "Pads or cuts to 30 s, as Whisper");
  CLI11_PARSE(app, count, arguments);
  try {
    return run(options);
  } catch (const rlx::Exception& exception) {
    std::fprintf(stderr, "speech_features: %s\n", exception.what());
    return 3;
  }
}
