// The oracle of recurrent layers: every step of every row in turn, or one of them.
#include "codegen/cancel_buffer.hpp"
#include "codegen/loop_interpret.hpp"

namespace rlx::loop {
namespace {

/// One direction and batch row of a recurrent layer.
class Walk {
 public:
  using Vector = std::vector<ScalarDatum>;  ///< by unit

  Walk(void* const* buffers, const Recurrence& r, std::int32_t cancel, Expression& expression)
      : buffers_(buffers), r_(r), cancel_(cancel), expression_(expression) {}

  void run() {
    if (r_.step_buffer >= 0) return run_one();
    for (const Access& from : r_.initial) load_state(from);
    for (std::int64_t n = 0; n < r_.steps && goes_on(); ++n) {
      go_to(n);
      step();
    }
    for (std::size_t s = 0; s < r_.next.size(); ++s) store_state(s);
  }

 private:
  void run_one() {
    const std::int64_t n = *static_cast<const std::int64_t*>(buffers_[r_.step_buffer]);
    go_to(n - 1);
    load_state(n == 0 ? r_.last[0] : r_.stores[0].access);
    go_to(n);
    for (std::size_t s = 1; s < r_.next.size(); ++s) load_state(r_.last[s]);
    step();
    for (std::size_t s = n == r_.steps - 1 ? 0 : 1; s < r_.next.size(); ++s) store_state(s);
  }

  void go_to(std::int64_t n) {
    const bool backward = expression_.point()[0] >= r_.first_reversed;
    expression_.point()[2] = backward ? r_.steps - 1 - n : n;
  }

  /// The next state, from there; buffer -1: zeros.
  void load_state(const Access& from) {
    Vector& state = states_.emplace_back(static_cast<std::size_t>(r_.units));
    for_each_unit([&](std::size_t unit) {
      if (from.buffer >= 0) state[unit] = load_datum(f32, bytes(from), address(from));
    });
  }
  void store_state(std::size_t s) {
    for_each_unit([&](std::size_t unit) {
      store_datum(f32, bytes(r_.last[s]), address(r_.last[s]), states_[s][unit]);
    });
  }

  void for_each_unit(const std::function<void(std::size_t)>& body) {
    std::int64_t& unit = expression_.point()[3];
    for (unit = 0; unit < r_.units; ++unit) body(static_cast<std::size_t>(unit));
    unit = 0;
  }

  bool goes_on() const {
    return cancel_ < 0 || *static_cast<const std::uint8_t*>(buffers_[cancel_]) == 0;
  }

  void step() {
    std::vector<Vector> products(static_cast<std::size_t>(r_.gates),
                                 Vector(static_cast<std::size_t>(r_.units)));
    const auto early = static_cast<std::size_t>(r_.late_input < 0 ? r_.gates : r_.early_gates);
    for (std::size_t gate = 0; gate < early; ++gate) products[gate] = product(gate, states_[0]);
    if (r_.late_input >= 0) {
      Vector input(static_cast<std::size_t>(r_.units));
      for_each_unit([&](std::size_t unit) {
        set_leaves(products, unit);
        input[unit] = expression_.at_point(r_.late_input);
      });
      for (std::size_t gate = early; gate < products.size(); ++gate) {
        products[gate] = product(gate, input);
      }
    }
    std::vector<Vector> next = states_;
    for_each_unit([&](std::size_t unit) {
      set_leaves(products, unit);
      expression_.run();
      for (std::size_t s = 0; s < next.size(); ++s) {
        next[s][unit] = expression_.at_point(r_.next[s]);
      }
    });
    states_ = std::move(next);
  }

  void set_leaves(const std::vector<Vector>& products, std::size_t unit) {
    std::vector<ScalarDatum> leaves;
    for (const Vector& product : products) leaves.push_back(product[unit]);
    for (const Vector& state : states_) leaves.push_back(state[unit]);
    expression_.set_leaves(std::move(leaves));
  }

  Vector product(std::size_t gate, const Vector& input) {
    const std::int64_t width = r_.panel_width, panels = (r_.units + width - 1) / width;
    const std::int64_t matrix = expression_.point()[0] * r_.gates + static_cast<std::int64_t>(gate);
    const auto* r = static_cast<const std::byte*>(buffers_[r_.r_buffer]);
    Vector result;
    for (std::int64_t unit = 0; unit < r_.units; ++unit) {
      const std::int64_t panel = matrix * panels + unit / width;
      double sum = 0;
      for (std::int64_t k = 0; k < r_.units; ++k) {
        const std::int64_t at = (panel * r_.units + k) * width + unit % width;
        sum +=
            input[static_cast<std::size_t>(k)].number.real() * load_datum(f32, r, at).number.real();
      }
      result.push_back({static_cast<float>(sum), 0});
    }
    return result;
  }

  std::byte* bytes(const Access& access) {
    return static_cast<std::byte*>(buffers_[access.buffer]);
  }
  std::int64_t address(const Access& access) {
    return access.offset + dot(access.strides, expression_.point());
  }

  void* const* buffers_;
  const Recurrence& r_;
  const std::int32_t cancel_;  ///< its cancel buffer
  Expression& expression_;
  std::vector<Vector> states_;
};

}  // namespace

void run_recurrence(const Kernel& kernel, void* const* buffers, const Recurrence& r) {
  Nest cell;
  cell.extents = {r.directions, r.batch, r.steps, r.units};
  cell.parallel_dims = 4;
  cell.accesses = r.accesses;
  cell.nodes = r.nodes;
  cell.stores = r.stores;
  Expression expression(kernel, buffers, cell);
  const std::int32_t cancel = codegen::cancel_buffer_of(kernel);
  for_each_point(cell.extents, 0, 2, expression.point(),
                 [&] { Walk(buffers, r, cancel, expression).run(); });
}

}  // namespace rlx::loop
