// Finding and opening the shared object that holds the generator.
#include "codegen/generator_source.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/own_file.hpp"

/// Defined where the generator is linked into the program, null otherwise.
extern "C" __attribute__((weak)) const rlx::codegen::CodeGenerator* rlx_code_generator();

namespace rlx::codegen {
namespace {

constexpr const char* file_name = "librlx_llvm.so";

/// The folder of the file that holds this code, with a slash behind it.
std::string own_folder() {
  const std::string path = own_file();
  return path.substr(0, path.rfind('/') + 1);
}

std::vector<std::string> candidates() {
  // A program with more rights than its user does not let the user choose its code.
  if (const char* chosen = secure_getenv("RLX_LLVM"); chosen != nullptr && *chosen != 0) {
    return {chosen};
  }
  std::vector<std::string> paths;
  if (const std::string folder = own_folder(); !folder.empty()) {
    paths.push_back(folder + file_name);
    paths.push_back(folder + "../lib/" + file_name);
    paths.push_back(folder + "../lib/rlx/" + file_name);
  }
#if defined(RLX_INSTALL_LIBDIR)
  paths.push_back(std::string(RLX_INSTALL_LIBDIR "/") + file_name);
#endif
  return paths;
}

std::string last_linker_error() {
  const char* text = dlerror();
  std::string reason = text == nullptr ? "no reason given" : text;
  dlerror();  // glibc holds a message until it is asked for the next one
  return reason;
}

}  // namespace

struct GeneratorSource::State {
  std::string identity;
  std::vector<std::string> paths;  ///< tried in order
  std::mutex mutex;
  const CodeGenerator* generator = nullptr;
};

GeneratorSource GeneratorSource::find() {
  if (&rlx_code_generator != nullptr) return of(*rlx_code_generator());
  auto state = std::make_shared<State>();
  for (const std::string& path : candidates()) {
    state->identity = identity_of_file(path);
    if (!state->identity.empty()) {
      state->paths = {path};
      return GeneratorSource(std::move(state));
    }
    state->paths.push_back(path);
  }
  if (secure_getenv("RLX_LLVM") == nullptr) state->paths.push_back(file_name);
  state->identity = "not found";
  return GeneratorSource(std::move(state));
}

GeneratorSource GeneratorSource::of(const CodeGenerator& generator) {
  auto state = std::make_shared<State>();
  state->identity = generator.version();
  state->generator = &generator;
  return GeneratorSource(std::move(state));
}

GeneratorSource GeneratorSource::in_file(std::string path) {
  auto state = std::make_shared<State>();
  state->identity = identity_of_file(path);
  state->paths.push_back(std::move(path));
  return GeneratorSource(std::move(state));
}

const std::string& GeneratorSource::identity() const { return state_->identity; }

Result<const CodeGenerator*> GeneratorSource::open() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->generator != nullptr) return state_->generator;
  std::string reasons;
  for (const std::string& path : state_->paths) {
    // Never closed again: LLVM keeps state that must not outlive its code.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      reasons += (reasons.empty() ? "" : "; ") + last_linker_error();
      continue;
    }
    auto* entry = reinterpret_cast<CodeGeneratorEntry>(dlsym(handle, code_generator_symbol));
    if (entry == nullptr) {
      reasons += (reasons.empty() ? "" : "; ") + last_linker_error();
      continue;
    }
    state_->generator = entry();
    if (state_->generator != nullptr) return state_->generator;
    reasons += path + " has no generator for this machine";
  }
  return not_available("The code generator ({}) cannot be opened: {}.", file_name, reasons);
}

}  // namespace rlx::codegen
