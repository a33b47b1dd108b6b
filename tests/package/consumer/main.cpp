// Uses the installed rlx as its users do; exit code 0 when it answers rightly.
#include <cstdio>

#include <rlx/dtype.hpp>
#include <rlx/result.hpp>

int main() {
  const bool right = rlx::size_of(rlx::f32) == 4 && rlx::dtype_named("bool") == rlx::boolean;
  std::puts(right ? "rlx is there." : "rlx answers wrongly.");
  return right ? 0 : 1;
}
