// Reading models of other formats as graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx {

struct ImportOptions {
  /// Dims of inputs that are known before the import, by input name: shape arithmetic folds with
  /// them at once. Without them symbolic dims stay symbols ("batch"); an unnamed dim becomes the
  /// symbol "INPUT:AXIS".
  std::map<std::string, Dims> input_dims;
  /// Values that inputs will have, where known. An input [n] or [] of few elements whose value
  /// decides dims, axes or trip counts is fixed to its value; it stays an input of the graph, but
  /// must then be fed that value. Others are not looked at.
  std::map<std::string, Tensor> input_values;
};

/// An input that a model declares. Dims as the import would make them: numbers, symbols,
/// "INPUT:AXIS".
struct DeclaredInput {
  std::string name;
  std::optional<Shape> shape;  ///< nothing where the model tells no rank
  std::optional<DType> dtype;  ///< nothing where it is no tensor of a dtype that rlx has
};

/// The inputs that an ONNX model wants fed, in order, read without importing it: for binding dims
/// before the import.
Result<std::vector<DeclaredInput>> onnx_declared_inputs(const std::filesystem::path& file);

/// An ONNX model file as a graph with its weights attached (mapped, not copied, where the file
/// allows). External data must lie in the model's folder. Errors: bad_input for a broken file,
/// unsupported with every op and type that is missing, all at once.
Result<Graph> import_onnx(const std::filesystem::path& file, const ImportOptions& options = {});

/// The same from memory (which must outlive the call only); external data is refused.
Result<Graph> import_onnx(std::span<const std::byte> model, const ImportOptions& options = {});

/// One tensor of an ONNX TensorProto file (.pb), and of a NumPy .npy file.
Result<Tensor> read_tensor_proto(const std::filesystem::path& file);
Result<Tensor> read_npy(const std::filesystem::path& file);
/// The arrays of a NumPy archive (numpy.savez, not compressed), by name without ".npy".
Result<std::map<std::string, Tensor>> read_npz(const std::filesystem::path& file);
/// Writes a .npy file: bf16 as its bits in uint16, 8-bit floats as uint8, 4-bit integers one a
/// byte.
Status write_npy(const std::filesystem::path& file, const Tensor& tensor);

/// Samples between -1 and 1, f32 [channels, T].
struct Sound {
  Tensor samples;
  std::int64_t sample_rate = 0;  ///< Hz
};
enum class SoundFormat : std::uint8_t { pcm_16, pcm_24, pcm_32, float_32 };
/// A .wav file of integers or floats, resampled (as rlx::resample) where a rate is given.
Result<Sound> read_wav(const std::filesystem::path& file, std::int64_t sample_rate = 0);
/// f32 [T] or [channels, T] as a .wav file; integers are clipped.
Status write_wav(const std::filesystem::path& file, const Tensor& samples, std::int64_t sample_rate,
                 SoundFormat format = SoundFormat::pcm_16);

/// The signals of an .edf or .bdf file; annotations are left out.
struct Recording {
  struct Channel {
    std::string label, unit;
    double sample_rate = 0;  ///< Hz
    Tensor samples;          ///< f32 [T], in `unit`
  };
  std::vector<Channel> channels;
  double duration_s = 0;
  bool is_continuous = true;  ///< false: EDF+D, whose records may have gaps between them
};
/// Resampled where a rate is given. Errors: bad_input for headers and lengths that contradict.
Result<Recording> read_edf(const std::filesystem::path& file, std::int64_t sample_rate = 0);

}  // namespace rlx
