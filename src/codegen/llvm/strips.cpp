// Strips: the bodies of all stages as functions, called one after the other for each strip. What
// one hands to the next lies in the worker's scratch.
#include <algorithm>

#include "base/error.hpp"
#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;

class StripsEmitter {
 public:
  StripsEmitter(Emitter& emitter, const loop::Strips& strips)
      : emitter_(emitter), builder_(emitter.builder), strips_(strips) {}

  Result<KernelShape> emit() {
    for (const auto& stage : strips_.stages) RLX_TRY(add_stage(stage));
    lay_out_scratch();
    emit_addresses();
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* strip) { emit_strip(strip); });
    return KernelShape{strips_.count(), scratch_bytes_};
  }

 private:
  struct Stage {
    BodyFunction body;
    bool is_nest = false;  ///< one item of which is a strip; else all of them are
  };

  Status add_stage(const std::variant<loop::Nest, loop::Contraction>& stage) {
    const auto* nest = std::get_if<loop::Nest>(&stage);
    RLX_ASSIGN(const BodyFunction body, emit_body(emitter_, "stage", [&](Emitter& inner) {
                 return nest ? emit_nest(inner, *nest)
                             : emit_contraction(inner, std::get<loop::Contraction>(stage));
               }));
    if (nest && body.shape.work_items != strips_.count()) {
      return internal_error("The work items ({}) of a stage are not its strips ({}).",
                            body.shape.work_items, strips_.count());
    }
    stages_.push_back({body, nest != nullptr});
    return {};
  }

  /// [buffers' addresses][local buffers][what one stage needs for itself]
  void lay_out_scratch() {
    const std::vector<loop::Buffer>& buffers = emitter_.kernel.buffers;
    scratch_bytes_ = align_up(static_cast<std::int64_t>(buffers.size()) * 8);
    for (const loop::Buffer& buffer : buffers) {
      local_at_.push_back(buffer.local ? scratch_bytes_ : -1);
      const std::int64_t bytes = buffer.elements * static_cast<std::int64_t>(size_of(buffer.dtype));
      if (buffer.local) scratch_bytes_ += align_up(bytes);
    }
    own_at_ = scratch_bytes_;
    std::int64_t most = 0;
    for (const Stage& stage : stages_) most = std::max(most, stage.body.shape.scratch_bytes);
    scratch_bytes_ += align_up(most);
  }

  Value* scratch_at(std::int64_t offset) {
    return builder_.CreateConstGEP1_64(builder_.getInt8Ty(), emitter_.scratch,
                                       static_cast<std::uint64_t>(offset));
  }

  void emit_addresses() {
    for (std::size_t i = 0; i < local_at_.size(); ++i) {
      Value* address = local_at_[i] < 0 ? emitter_.buffers[i] : scratch_at(local_at_[i]);
      builder_.CreateStore(address, scratch_at(static_cast<std::int64_t>(i) * 8));
    }
  }

  void emit_strip(Value* strip) {
    Value* own = scratch_at(own_at_);
    for (const Stage& stage : stages_) {
      Value* begin = stage.is_nest ? strip : emitter_.i64(0);
      Value* end = stage.is_nest ? builder_.CreateAdd(strip, emitter_.i64(1))
                                 : emitter_.i64(stage.body.shape.work_items);
      builder_.CreateCall(stage.body.function, {emitter_.scratch, begin, end, own});
    }
  }

  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  const loop::Strips& strips_;
  std::vector<Stage> stages_;
  std::vector<std::int64_t> local_at_;  ///< by buffer; -1: not in scratch
  std::int64_t own_at_ = 0, scratch_bytes_ = 0;
};

}  // namespace

Result<KernelShape> emit_strips(Emitter& emitter, const loop::Strips& strips) {
  return StripsEmitter(emitter, strips).emit();
}

}  // namespace rlx::codegen
