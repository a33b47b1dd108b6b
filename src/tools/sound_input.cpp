// Sound files as values of a model's inputs.
#include "tools/sound_input.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rlx::tools {
namespace {

/// The mean of the channels, [1, T].
Tensor mixed(const Tensor& samples) {
  const std::int64_t channels = samples.dims()[0], count = samples.dims()[1];
  if (channels == 1) return samples;
  Tensor result(f32, {1, count});
  auto* out = reinterpret_cast<float*>(result.mutable_data());
  const auto values = samples.as<float>();
  for (std::int64_t t = 0; t < count; ++t) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      sum += static_cast<double>(values[static_cast<std::size_t>(c * count + t)]);
    out[t] = static_cast<float>(sum / static_cast<double>(channels));
  }
  return result;
}

/// Whether the axis before the samples wants the file's channels.
bool wants_channels(const Shape& shape, std::int64_t channels) {
  if (shape.size() < 2) return false;
  const Dim& dim = shape[shape.size() - 2];
  return !dim.is_static() || dim.value() == channels;
}

}  // namespace

Result<Tensor> read_sound_input(const std::filesystem::path& file, std::int64_t sample_rate,
                                const DeclaredInput& input) {
  RLX_ASSIGN(const Sound sound, read_wav(file, sample_rate));
  Tensor samples = sound.samples;
  if (input.shape) {
    if (input.shape->empty())
      return bad_input("The input ({}) is one number and takes no sound.", input.name);
    if (!wants_channels(*input.shape, samples.dims()[0])) samples = mixed(samples);
    Dims dims(input.shape->size(), 1);
    dims.back() = samples.dims()[1];
    if (dims.size() > 1) dims[dims.size() - 2] = samples.dims()[0];
    samples = samples.reshaped(dims);
  }
  if (!input.dtype || *input.dtype == f32) return samples;
  if (*input.dtype != f64) {
    return bad_input("The input ({}) of {} takes no sound: sound is f32 or f64.", input.name,
                     name_of(*input.dtype));
  }
  const auto values = samples.as<float>();
  const std::vector<double> wide(values.begin(), values.end());
  return Tensor::of<double>(samples.dims(), std::span<const double>(wide));
}

}  // namespace rlx::tools
