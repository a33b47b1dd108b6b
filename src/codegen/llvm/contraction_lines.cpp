// The function that copies the lines of a segment into scratch.
#include <algorithm>

#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

class LineCopy {
 public:
  LineCopy(const ContractionContext& context, PartFunction& part)
      : line_(context.plan.line),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        bytes_(static_cast<std::int64_t>(size_of(context.a_dtype()))) {}

  void emit() {
    Integers starts{0};
    for (const GuardBounds& guard : line_.guards) starts.push_back(guard.offset);
    const Values segment = sums(part_.argument(2), line_.outer, starts);
    const Integers zeros(starts.size(), 0);
    emitter_.loop(emitter_.i64(0), emitter_.i64(line_.count()), 1, [&](Value* number) {
      const Values line = sums(number, line_.lines, zeros);
      Value* source = at(part_.argument(0), builder_.CreateAdd(segment[0], line[0]));
      Value* offset = builder_.CreateMul(number, emitter_.i64(line_.pitch * bytes_));
      Value* target = at(part_.argument(1), offset);
      Value* inside = nullptr;
      for (std::size_t g = 0; g < line_.guards.size(); ++g) {
        Value* position = builder_.CreateAdd(segment[g + 1], line[g + 1]);
        Value* good = builder_.CreateICmpULT(
            position, emitter_.i64(std::max<std::int64_t>(line_.guards[g].extent, 0)));
        inside = inside ? builder_.CreateAnd(inside, good) : good;
      }
      if (!inside) return move_bytes(source, target);
      emitter_.when(inside, [&] { move_bytes(source, target); });
      emitter_.when(builder_.CreateNot(inside), [&] { move_bytes(nullptr, target); });
    });
    builder_.CreateRetVoid();
  }

 private:
  Value* at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }

  Values sums(Value* linear, const std::vector<AddressDim>& dims, const Integers& starts) {
    Integers extents;
    std::vector<Integers> steps(starts.size());
    for (const AddressDim& dim : dims) {
      extents.push_back(dim.extent);
      steps[0].push_back(dim.a * bytes_);
      for (std::size_t g = 1; g < steps.size(); ++g) steps[g].push_back(dim.guards[g - 1]);
    }
    return emit_linear_sums(emitter_, linear, extents, steps, starts);
  }

  /// The valid part of a line; source null: zeros.
  void move_bytes(Value* source, Value* target) {
    const std::int64_t element = line_.channels * bytes_;
    if (line_.channels == line_.apart)
      return move_run(source, target, line_.valid_begin * element, line_.valid_end * element);
    emitter_.loop(emitter_.i64(line_.valid_begin), emitter_.i64(line_.valid_end), 1,
                  [&](Value* position) {
                    const auto from = [&](Value* pointer, std::int64_t step) {
                      return at(pointer, builder_.CreateMul(position, emitter_.i64(step)));
                    };
                    move_run(source ? from(source, line_.apart * bytes_) : nullptr,
                             from(target, element), 0, element);
                  });
  }

  /// The bytes from `first` to `last`.
  void move_run(Value* source, Value* target, std::int64_t first, std::int64_t last) {
    const std::int64_t width = emitter_.machine.vector_bytes;
    const auto piece = [&](Value* offset, std::int64_t size) {
      llvm::Type* type =
          size == 1 ? static_cast<llvm::Type*>(builder_.getInt8Ty())
                    : llvm::FixedVectorType::get(builder_.getInt8Ty(), static_cast<unsigned>(size));
      Value* value = llvm::Constant::getNullValue(type);
      if (source) value = builder_.CreateAlignedLoad(type, at(source, offset), llvm::Align(1));
      builder_.CreateAlignedStore(value, at(target, offset), llvm::Align(1));
    };
    const std::int64_t count = (last - first) / width;
    const std::int64_t whole = first + count * width;
    if (count == 1) {
      piece(emitter_.i64(first), width);
    } else {
      emitter_.loop(emitter_.i64(first), emitter_.i64(whole), width,
                    [&](Value* offset) { piece(offset, width); });
    }
    std::int64_t done = whole;
    for (std::int64_t size = width / 2; size >= 1; size /= 2) {
      if (last - done < size) continue;
      piece(emitter_.i64(done), size);
      done += size;
    }
  }

  const LinePlan& line_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  const std::int64_t bytes_;
};

}  // namespace

llvm::Function* emit_line_copy(const ContractionContext& context) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  llvm::Type* integer = context.emitter.builder.getInt64Ty();
  PartFunction part(context.emitter, "lines", {pointer, pointer, integer});
  LineCopy(context, part).emit();
  return part.function();
}

}  // namespace rlx::codegen
