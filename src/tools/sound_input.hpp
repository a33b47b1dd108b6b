// Sound files as values of a model's inputs.
#pragma once

#include <cstdint>
#include <filesystem>

#include "rlx/import.hpp"

namespace rlx::tools {

/// A .wav file as the input's dims want it: [T] and [1, T] take the mean of the channels, [C, T]
/// with the file's number of channels (or a C that is a symbol) the channels, more axes before them
/// are 1. f32, f64 (converted) alone. Resampled where a rate is given.
Result<Tensor> read_sound_input(const std::filesystem::path& file, std::int64_t sample_rate,
                                const DeclaredInput& input);

}  // namespace rlx::tools
