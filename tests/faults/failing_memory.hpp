// An allocator that fails once, at the n-th allocation of the whole program, and counts what lives.
#pragma once

namespace rlx::test {

/// Counts allocations from now on, and makes number `fail_at` (from 0) fail: malloc and its like
/// and mmap give null, operator new throws. Under a sanitizer, whose malloc is its own, only
/// operator new fails.
void arm(long fail_at);
/// Nothing fails any more. Gives the allocations since arm().
long disarm();
/// Blocks and mappings that were made and not freed yet. 0 under a sanitizer, which looks for leaks
/// itself.
long living();

}  // namespace rlx::test
