// Loads and stores of runs of elements: contiguous, reversed, broadcast, strided, masked.
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

llvm::Align alignment(DType dtype) { return llvm::Align(size_of(dtype)); }

llvm::Value* reverse(Emitter& emitter, llvm::Value* value) {
  return emitter.builder.CreateVectorReverse(value);
}

llvm::Value* any_lane(Emitter& emitter, llvm::Value* mask) {
  return lanes_of(mask) == 1 ? mask : emitter.builder.CreateOrReduce(mask);
}

llvm::Value* fill_of(Emitter& emitter, DType dtype, unsigned lanes, llvm::Value* fill) {
  if (!fill) return llvm::Constant::getNullValue(value_type(emitter, dtype, lanes));
  return splat(emitter, fill, lanes);
}

/// One value made under a condition, else `otherwise`.
llvm::Value* guarded(Emitter& emitter, llvm::Value* condition, llvm::Value* otherwise,
                     const std::function<llvm::Value*()>& make) {
  auto& b = emitter.builder;
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Value* made = nullptr;
  llvm::BasicBlock* inside = nullptr;
  emitter.when(condition, [&] {
    made = make();
    inside = b.GetInsertBlock();
  });
  llvm::PHINode* merged = b.CreatePHI(made->getType(), 2);
  merged->addIncoming(otherwise, before);
  merged->addIncoming(made, inside);
  return merged;
}

llvm::Value* element_pointers(Emitter& emitter, DType dtype, llvm::Value* pointer,
                              std::int64_t stride, unsigned lanes) {
  auto& b = emitter.builder;
  llvm::Value* offsets =
      b.CreateMul(lane_numbers(emitter, lanes), splat(emitter, emitter.i64(stride), lanes));
  return b.CreateGEP(memory_type(emitter, dtype), pointer, offsets);
}

/// Memory values of a run whose stride is 1.
llvm::Value* load_run(Emitter& emitter, DType dtype, llvm::Value* pointer, unsigned lanes,
                      llvm::Value* mask) {
  auto& b = emitter.builder;
  llvm::Type* type = with_lanes(memory_type(emitter, dtype), lanes);
  if (!mask) return b.CreateAlignedLoad(type, pointer, alignment(dtype));
  return b.CreateMaskedLoad(type, pointer, alignment(dtype), mask,
                            llvm::Constant::getNullValue(type));
}

/// The mask of a run that begins `first` elements behind lane 0: of the lanes' own elements.
llvm::Value* mask_of_run(Emitter& emitter, llvm::Value* mask, int stride, int first) {
  const auto lanes = static_cast<int>(lanes_of(mask));
  std::vector<int> pick;
  for (int at = first; at < first + lanes; ++at) {
    const bool is_of_a_lane = at % stride == 0 && at / stride < lanes;
    pick.push_back(is_of_a_lane ? at / stride : lanes);
  }
  llvm::Constant* none = llvm::Constant::getNullValue(mask->getType());
  return emitter.builder.CreateShuffleVector(mask, none, pick);
}

/// Every stride-th element by whole loads that reach no further than the last of them, and
/// shuffles: much cheaper than gathers. mask: of the lanes that are read; null: all of them.
llvm::Value* load_every(Emitter& emitter, DType dtype, llvm::Value* pointer, int stride, int lanes,
                        llvm::Value* mask) {
  auto& b = emitter.builder;
  llvm::Type* element = memory_type(emitter, dtype);
  llvm::Value* result = nullptr;
  for (int part = 0; part < stride; ++part) {
    const int last = stride * (lanes - 1) - (lanes - 1);
    const int first = std::min(part * lanes, last);
    llvm::Value* place = b.CreateConstGEP1_64(element, pointer, static_cast<std::uint64_t>(first));
    llvm::Value* run = load_run(emitter, dtype, place, static_cast<unsigned>(lanes),
                                mask ? mask_of_run(emitter, mask, stride, first) : nullptr);
    std::vector<int> pick;
    for (int lane = 0; lane < lanes; ++lane) {
      const int inside = lane * stride - first;
      const bool here = inside >= 0 && inside < lanes;
      pick.push_back(here ? lanes + inside : lane);
    }
    result =
        b.CreateShuffleVector(result ? result : llvm::PoisonValue::get(run->getType()), run, pick);
  }
  return result;
}

/// So many first lanes that a constant mask lets through; none where it is no such mask.
std::optional<unsigned> first_lanes(llvm::Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  if (!constant) return std::nullopt;
  unsigned count = 0;
  bool ended = false;
  for (unsigned lane = 0; lane < lanes_of(mask); ++lane) {
    const llvm::Constant* bit = constant->getAggregateElement(lane);
    if (!bit || !(bit->isOneValue() || bit->isNullValue())) return std::nullopt;
    if (bit->isNullValue()) ended = true;
    if (ended && !bit->isNullValue()) return std::nullopt;
    count += ended ? 0 : 1;
  }
  return count;
}

/// The first lanes, by halves of the register and halves of those.
void store_first(Emitter& emitter, DType dtype, llvm::Value* bits, llvm::Value* pointer,
                 unsigned count) {
  auto& b = emitter.builder;
  for (unsigned at = 0; at < count;) {
    const unsigned size = std::bit_floor(count - at);
    std::vector<int> pick(size);
    std::iota(pick.begin(), pick.end(), static_cast<int>(at));
    llvm::Value* place = b.CreateConstGEP1_64(memory_type(emitter, dtype), pointer, at);
    b.CreateAlignedStore(b.CreateShuffleVector(bits, pick), place, alignment(dtype));
    at += size;
  }
}

/// Where lanes of a register are read and written one by one anyway, the addresses of those at a
/// constant distance are best constants, too: a vector of pointers is taken apart lane by lane.
bool goes_lane_by_lane(const Emitter& emitter, llvm::Value* mask) {
  return !mask && !emitter.machine.masks;
}

llvm::Value* load_lanes(Emitter& emitter, DType dtype, llvm::Value* pointer, std::int64_t stride,
                        unsigned lanes) {
  auto& b = emitter.builder;
  llvm::Type* type = memory_type(emitter, dtype);
  llvm::Value* all = llvm::PoisonValue::get(with_lanes(type, lanes));
  for (unsigned lane = 0; lane < lanes; ++lane) {
    llvm::Value* place = b.CreateConstGEP1_64(type, pointer, stride * std::int64_t{lane});
    all = b.CreateInsertElement(all, b.CreateAlignedLoad(type, place, alignment(dtype)), lane);
  }
  return all;
}

void store_lanes(Emitter& emitter, DType dtype, llvm::Value* bits, llvm::Value* pointer,
                 std::int64_t stride, unsigned lanes) {
  auto& b = emitter.builder;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    llvm::Value* place =
        b.CreateConstGEP1_64(memory_type(emitter, dtype), pointer, stride * std::int64_t{lane});
    b.CreateAlignedStore(b.CreateExtractElement(bits, lane), place, alignment(dtype));
  }
}

}  // namespace

void emit_prefetch(Emitter& emitter, llvm::Value* pointer, bool write, int locality) {
  auto& b = emitter.builder;
  constexpr int data = 1;
  b.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                    {pointer, b.getInt32(write ? 1 : 0), b.getInt32(locality), b.getInt32(data)});
}

llvm::Value* tail_mask(Emitter& emitter, llvm::Value* count, unsigned lanes) {
  auto& b = emitter.builder;
  if (lanes > 32) {
    return b.CreateICmpULT(lane_numbers(emitter, lanes), splat(emitter, count, lanes));
  }
  std::vector<llvm::Constant*> numbers;
  for (unsigned i = 0; i < lanes; ++i) numbers.push_back(b.getInt32(i));
  llvm::Value* limit = b.CreateTrunc(
      b.CreateSelect(b.CreateICmpULT(count, emitter.i64(lanes)), count, emitter.i64(lanes)),
      b.getInt32Ty());
  return b.CreateICmpULT(llvm::ConstantVector::get(numbers), splat(emitter, limit, lanes));
}

llvm::Value* emit_gather(Emitter& emitter, DType dtype, llvm::Value* pointers, llvm::Value* mask,
                         llvm::Value* fill) {
  auto& b = emitter.builder;
  const unsigned lanes = lanes_of(pointers);
  llvm::Type* type = with_lanes(memory_type(emitter, dtype), lanes);
  llvm::Value* read = b.CreateMaskedGather(type, pointers, alignment(dtype), mask,
                                           llvm::Constant::getNullValue(type));
  llvm::Value* value = decode(emitter, dtype, read);
  if (!mask || !fill) return value;
  return b.CreateSelect(mask, value, fill_of(emitter, dtype, lanes, fill));
}

void emit_scatter(Emitter& emitter, DType dtype, llvm::Value* value, llvm::Value* pointers,
                  llvm::Value* mask) {
  llvm::Value* bits = encode(emitter, dtype, splat(emitter, value, lanes_of(pointers)));
  emitter.builder.CreateMaskedScatter(bits, pointers, alignment(dtype), mask);
}

llvm::Value* emit_picked(Emitter& emitter, DType dtype, llvm::Value* row, llvm::Value* places,
                         std::int64_t extent, int registers) {
  auto& b = emitter.builder;
  const unsigned lanes = lanes_of(places), read = lanes * static_cast<unsigned>(registers);
  // What is read ends with the row; a row that is shorter is read under a mask.
  const bool is_short = extent < static_cast<std::int64_t>(read);
  llvm::Value* first = emitter.i64(0);
  if (!is_short) {
    llvm::Value* place = b.CreateExtractElement(places, std::uint64_t{0});
    first = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateZExt(place, b.getInt64Ty()),
                                    emitter.i64(extent - read));
  }
  llvm::Type* words = llvm::FixedVectorType::get(b.getInt32Ty(), lanes);
  llvm::Value* index = b.CreateSub(b.CreateZExtOrTrunc(places, words),
                                   splat(emitter, b.CreateTrunc(first, b.getInt32Ty()), lanes));
  llvm::Type* reals = llvm::FixedVectorType::get(b.getFloatTy(), lanes);
  llvm::Type* type = nullptr;
  std::array<llvm::Value*, 2> parts{};
  for (int i = 0; i < registers; ++i) {
    const unsigned begin = lanes * static_cast<unsigned>(i);
    std::vector<llvm::Constant*> exists;
    for (unsigned lane = begin; lane < begin + lanes; ++lane)
      exists.push_back(b.getInt1(lane < extent));
    llvm::Value* place =
        b.CreateGEP(memory_type(emitter, dtype), row, b.CreateAdd(first, emitter.i64(begin)));
    llvm::Value* mask = is_short ? llvm::ConstantVector::get(exists) : nullptr;
    llvm::Value* run = decode(emitter, dtype, load_run(emitter, dtype, place, lanes, mask));
    type = run->getType();
    parts[static_cast<std::size_t>(i)] = b.CreateBitCast(run, reals);
  }
  const auto pick = [&](llvm::Value* from) {
    return lanes == 16
               ? b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {from, index})
               : b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {from, index});
  };
  if (registers == 1) return b.CreateBitCast(pick(parts[0]), type);
  if (lanes == 16)
    return b.CreateBitCast(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                                             {parts[0], index, parts[1]}),
                           type);
  llvm::Value* in_second =
      b.CreateICmpSGE(index, llvm::ConstantInt::get(words, std::uint64_t{lanes}));
  return b.CreateBitCast(b.CreateSelect(in_second, pick(parts[1]), pick(parts[0])), type);
}

llvm::Value* emit_load(Emitter& emitter, DType dtype, llvm::Value* pointer, std::int64_t stride,
                       unsigned lanes, llvm::Value* mask, llvm::Value* fill) {
  auto& b = emitter.builder;
  const bool one = lanes == 1 || stride == 0;
  if (mask && (lanes_of(mask) == 1 || stride == 0)) {
    const unsigned width = one ? 1 : lanes;
    llvm::Value* value =
        guarded(emitter, any_lane(emitter, mask), fill_of(emitter, dtype, width, fill),
                [&] { return emit_load(emitter, dtype, pointer, stride, lanes); });
    if (lanes_of(mask) == 1) return value;
    return b.CreateSelect(mask, splat(emitter, value, lanes), fill_of(emitter, dtype, lanes, fill));
  }
  if (one) return decode(emitter, dtype, load_run(emitter, dtype, pointer, 1, nullptr));
  if ((!mask || emitter.machine.masks) && is_shuffled(stride, lanes)) {
    llvm::Value* value = decode(emitter, dtype,
                                load_every(emitter, dtype, pointer, static_cast<int>(stride),
                                           static_cast<int>(lanes), mask));
    return mask && fill ? b.CreateSelect(mask, value, splat(emitter, fill, lanes)) : value;
  }
  if (stride != 1 && stride != -1) {
    if (goes_lane_by_lane(emitter, mask))
      return decode(emitter, dtype, load_lanes(emitter, dtype, pointer, stride, lanes));
    return emit_gather(emitter, dtype, element_pointers(emitter, dtype, pointer, stride, lanes),
                       mask, fill);
  }
  if (stride == -1) {
    llvm::Value* first = b.CreateConstGEP1_64(memory_type(emitter, dtype), pointer,
                                              1 - static_cast<std::int64_t>(lanes));
    llvm::Value* run = load_run(emitter, dtype, first, lanes, mask ? reverse(emitter, mask) : mask);
    llvm::Value* value = decode(emitter, dtype, reverse(emitter, run));
    return mask && fill ? b.CreateSelect(mask, value, splat(emitter, fill, lanes)) : value;
  }
  llvm::Value* value = decode(emitter, dtype, load_run(emitter, dtype, pointer, lanes, mask));
  return mask && fill ? b.CreateSelect(mask, value, splat(emitter, fill, lanes)) : value;
}

void emit_store(Emitter& emitter, DType dtype, llvm::Value* value, llvm::Value* pointer,
                std::int64_t stride, unsigned lanes, llvm::Value* mask, bool in_pieces) {
  auto& b = emitter.builder;
  if (mask && lanes_of(mask) == 1) {
    emitter.when(mask, [&] { emit_store(emitter, dtype, value, pointer, stride, lanes); });
    return;
  }
  if (lanes == 1 || (stride == 0 && !mask)) {
    llvm::Value* last = lanes_of(value) == 1 ? value : b.CreateExtractElement(value, lanes - 1);
    b.CreateAlignedStore(encode(emitter, dtype, last), pointer, alignment(dtype));
    return;
  }
  if (stride != 1 && stride != -1) {
    if (stride != 0 && goes_lane_by_lane(emitter, mask)) {
      llvm::Value* bits = encode(emitter, dtype, splat(emitter, value, lanes));
      store_lanes(emitter, dtype, bits, pointer, stride, lanes);
      return;
    }
    emit_scatter(emitter, dtype, value, element_pointers(emitter, dtype, pointer, stride, lanes),
                 mask);
    return;
  }
  llvm::Value* bits = encode(emitter, dtype, splat(emitter, value, lanes));
  if (stride == -1) {
    bits = reverse(emitter, bits);
    if (mask) mask = reverse(emitter, mask);
    pointer = b.CreateConstGEP1_64(memory_type(emitter, dtype), pointer,
                                   1 - static_cast<std::int64_t>(lanes));
  }
  // Without masks of their own, machines take many instructions for what is a few short stores.
  if (!emitter.machine.masks) in_pieces = true;
  const auto count = mask && in_pieces ? first_lanes(mask) : std::nullopt;
  if (count) {
    store_first(emitter, dtype, bits, pointer, *count);
  } else if (mask) {
    b.CreateMaskedStore(bits, pointer, alignment(dtype), mask);
  } else {
    b.CreateAlignedStore(bits, pointer, alignment(dtype));
  }
}

}  // namespace rlx::codegen
