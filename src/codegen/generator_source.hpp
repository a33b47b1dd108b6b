// Where the code generator comes from: a shared object with LLVM inside, opened when something must
// be compiled and not before.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/code.hpp"
#include "rlx/result.hpp"

namespace rlx::codegen {

/// A generator that is opened on demand. Copies share it.
class GeneratorSource {
 public:
  /// The generator of this installation: RLX_LLVM (a file), else librlx_llvm.so beside this library
  /// or executable, in ../lib, or where the linker looks; or the one linked into the program.
  /// Finding it opens nothing.
  static GeneratorSource find();

  /// A generator that is there already and outlives all users.
  static GeneratorSource of(const CodeGenerator& generator);

  /// The generator in that shared object.
  static GeneratorSource in_file(std::string path);

  /// Tells generators apart without opening them: code made by another one is not used. A file is
  /// known by its size and the time of its last change.
  const std::string& identity() const;

  /// Thread-safe; opens once. Errors: not_available with the reasons of the dynamic linker.
  Result<const CodeGenerator*> open() const;

 private:
  struct State;
  explicit GeneratorSource(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace rlx::codegen
