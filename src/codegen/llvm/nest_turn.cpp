// Tiles of maps that are turned in registers: read in runs along one dim and written along another,
// or woven from several runs into one.
#include "codegen/llvm/nest.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }

/// The elements of the runs in turns, as so many runs: of a and b a0, b0, a1, b1, ...
std::vector<llvm::Value*> woven(Emitter& emitter, const std::vector<llvm::Value*>& runs) {
  auto& b = emitter.builder;
  const int count = static_cast<int>(runs.size());
  if (count == 1) return runs;
  const int lanes = static_cast<int>(lanes_of(runs.front()));
  std::vector<llvm::Value*> results;
  if (count % 2 == 0) {
    // Every other run, woven, with the others: shuffles of two registers.
    std::vector<llvm::Value*> halves[2];
    for (int i = 0; i < count; ++i) halves[i % 2].push_back(runs[at(i)]);
    const auto even = woven(emitter, halves[0]), odd = woven(emitter, halves[1]);
    for (std::size_t i = 0; i < even.size(); ++i) {
      for (const int first : {0, lanes / 2}) {
        std::vector<int> pick;
        for (int lane = 0; lane < lanes; ++lane)
          pick.push_back(first + lane / 2 + (lane % 2 == 0 ? 0 : lanes));
        results.push_back(b.CreateShuffleVector(even[i], odd[i], pick));
      }
    }
    return results;
  }
  for (int part = 0; part < count; ++part) {
    llvm::Value* made = llvm::PoisonValue::get(runs.front()->getType());
    for (int run = 0; run < count; ++run) {
      std::vector<int> pick;
      for (int lane = 0; lane < lanes; ++lane) {
        const int place = part * lanes + lane;
        pick.push_back(place % count == run ? lanes + place / count : lane);
      }
      made = b.CreateShuffleVector(made, runs[at(run)], pick);
    }
    results.push_back(made);
  }
  return results;
}

}  // namespace

/// Which points of a square tile the access's guards let it read, <lanes x i1> along the tile dim;
/// null: all. Where none does, `pointer` becomes one that is safe to read from.
llvm::Value* NestEmitter::turned_mask(const NestFrame& frame, const loop::Access& a,
                                      llvm::Value*& pointer) {
  auto& b = emitter_.builder;
  llvm::Value* mask = nullptr;
  for (const loop::Guard& guard : a.guards) {
    llvm::Value* position = emitter_.i64(guard.offset);
    for (std::size_t dim = 0; dim < guard.coefficients.size(); ++dim) {
      const std::int64_t step = guard.coefficients[dim];
      if (step == 0) continue;
      position = b.CreateAdd(position, b.CreateMul(frame.index[dim], emitter_.i64(step)));
    }
    const std::int64_t along = guard.coefficients[static_cast<std::size_t>(plan_.tile_dim())];
    if (along != 0) {
      llvm::Value* steps = splat(emitter_, emitter_.i64(along), frame.lanes);
      position = b.CreateAdd(splat(emitter_, position, frame.lanes),
                             b.CreateMul(lane_numbers(emitter_, frame.lanes), steps));
    }
    llvm::Value* extent = splat(emitter_, emitter_.i64(guard.extent), lanes_of(position));
    llvm::Value* holds = b.CreateICmpULT(position, extent);
    if (along == 0) {
      // A masked read far outside of the buffer is harmless, but slow.
      llvm::Value* start = emitter_.buffers[static_cast<std::size_t>(a.buffer)];
      pointer = b.CreateSelect(holds, pointer, start);
    }
    holds = splat(emitter_, holds, frame.lanes);
    mask = mask ? b.CreateAnd(mask, holds) : holds;
  }
  return mask;
}

/// `pointer`, which points to where the frame begins, moved to its place along the vector dim.
llvm::Value* NestEmitter::along_vector_dim(const NestFrame& frame, std::size_t number,
                                           llvm::Value* pointer) {
  const auto dim = static_cast<std::size_t>(plan_.vector_dim);
  const loop::Access& a = access(number);
  const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype;
  llvm::Value* distance =
      emitter_.builder.CreateMul(frame.index[dim], emitter_.i64(a.strides[dim]));
  return emitter_.builder.CreateGEP(memory_type(emitter_, dtype), pointer, distance);
}

/// Reads a square tile in runs along the tile dim and exchanges ever wider blocks between pairs of
/// rows, which turns it into runs along the vector dim.
void NestEmitter::load_turned(const NestFrame& frame, std::vector<PointExpression>& points,
                              ScalarId node) {
  auto& b = emitter_.builder;
  const auto number = static_cast<std::size_t>(nest_.nodes[at(node)].index);
  const loop::Access& a = nest_.accesses[number];
  const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype;
  llvm::Type* element = memory_type(emitter_, dtype);
  const std::int64_t stride = a.strides[static_cast<std::size_t>(plan_.vector_dim)];
  llvm::Value* corner = along_vector_dim(frame, number, frame.addresses[number].pointer);
  llvm::Value* mask = turned_mask(frame, a, corner);
  llvm::Constant* fill = constant_of(emitter_, dtype, 1, a.fill, static_cast<std::int64_t>(a.fill));
  Values rows;
  for (unsigned lane = 0; lane < frame.lanes; ++lane) {
    llvm::Value* run = b.CreateGEP(element, corner, emitter_.i64(stride * lane));
    rows.push_back(emit_load(emitter_, dtype, run, 1, frame.lanes, mask, mask ? fill : nullptr));
  }
  const int lanes = static_cast<int>(frame.lanes);
  for (int width = 1; width < lanes; width *= 2) {
    std::vector<int> low, high;
    for (int lane = 0; lane < lanes; ++lane) {
      low.push_back(lane & width ? lanes + lane - width : lane);
      high.push_back(lane & width ? lanes + lane : lane + width);
    }
    for (int row = 0; row < lanes; ++row) {
      if (row & width) continue;
      llvm::Value*& first = rows[static_cast<std::size_t>(row)];
      llvm::Value*& second = rows[static_cast<std::size_t>(row + width)];
      llvm::Value* mixed = b.CreateShuffleVector(first, second, low);
      second = b.CreateShuffleVector(first, second, high);
      first = mixed;
    }
  }
  for (std::size_t i = 0; i < points.size(); ++i) points[i].set(node, rows[i]);
}

/// Asks for the lines in which the runs of the next tile end. No processor foresees so many streams
/// of short runs, and stores across two lines wait for both of them one after the other. What
/// lies behind the item's part another worker may be writing.
void NestEmitter::ask_for_next_tile(const NestFrame& frame, const std::vector<int>& stores) {
  auto& b = emitter_.builder;
  for (const int number : stores) {
    const loop::Access& a = nest_.stores[at(number)].access;
    if (a.strides[static_cast<std::size_t>(plan_.vector_dim)] != 1 || !a.indirect.empty()) continue;
    const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype;
    const std::uint64_t run = std::uint64_t{frame.lanes} * size_of(dtype);
    const std::size_t place = nest_.accesses.size() + at(number);
    llvm::Value* next = b.CreateAdd(frame.index[static_cast<std::size_t>(plan_.vector_dim)],
                                    emitter_.i64(frame.lanes));
    llvm::Value* ahead =
        b.CreateSelect(b.CreateICmpSLT(next, frame.high),
                       emitter_.i64(static_cast<std::int64_t>(2 * run - 1)), emitter_.i64(0));
    for (unsigned vector = 0; vector < frame.vectors; ++vector) {
      llvm::Value* start = along_vector_dim(frame, place, address_of(frame, place, vector).pointer);
      emit_prefetch(emitter_, b.CreateGEP(b.getInt8Ty(), start, ahead), true, 3);
    }
  }
}

/// All points of a square tile; turned loads are there before everything else.
NestEmitter::Values NestEmitter::emit_turned(const NestFrame& frame, const NestPass& pass,
                                             Values state) {
  std::vector<PointExpression> points;
  for (unsigned vector = 0; vector < frame.vectors; ++vector) {
    points.push_back(expression_at(frame, pass, vector));
  }
  for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
    const ScalarNode& node = nest_.nodes[id];
    if (node.op != ScalarOp::load) continue;
    if (std::find(plan_.turned.begin(), plan_.turned.end(), node.index) == plan_.turned.end())
      continue;
    load_turned(frame, points, static_cast<ScalarId>(id));
  }
  ask_for_next_tile(frame, pass.stores);
  emit_stores(frame, pass.stores, points);
  return state;
}

/// A store whose vectors of a tile lie in turns: woven, they are runs.
void NestEmitter::store_woven(const NestFrame& frame, int number,
                              std::vector<PointExpression>& points) {
  auto& b = emitter_.builder;
  const loop::Store& store = nest_.stores[at(number)];
  const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(store.access.buffer)].dtype;
  llvm::Type* element = memory_type(emitter_, dtype);
  const std::size_t place_of_store = nest_.accesses.size() + at(number);
  llvm::Value* pointer =
      along_vector_dim(frame, place_of_store, frame.addresses[place_of_store].pointer);
  const unsigned runs = frame.vectors / frame.tile;
  unsigned place = 0;
  for (unsigned run = 0; run < runs; ++run) {
    Values values, masks;
    for (unsigned point = 0; point < frame.tile; ++point) {
      llvm::Value* value = points[point * runs + run].value(store.node);
      values.push_back(splat(emitter_, value, frame.lanes));
      if (frame.mask) masks.push_back(frame.mask);
    }
    values = woven(emitter_, values);
    masks = frame.mask ? woven(emitter_, masks) : Values(values.size(), nullptr);
    for (std::size_t i = 0; i < values.size(); ++i) {
      llvm::Value* start = b.CreateConstGEP1_64(element, pointer, place);
      emit_store(emitter_, dtype, values[i], start, 1, frame.lanes, masks[i]);
      place += frame.lanes;
    }
  }
}

}  // namespace rlx::codegen
