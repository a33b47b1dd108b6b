// Memory for tensors, arenas and weights: aligned, zeroed, and on huge pages where that pays.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace rlx {

/// So many zero bytes, aligned to 64. From 2 MiB on they come from the system as huge pages where
/// it has them and bytes_on_huge_pages() wants them: a tenth of the page faults' time when weights
/// are loaded, and up to a tenth more bandwidth from the cache afterwards; such memory is zero
/// without being written. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_zeroed(std::size_t bytes);

/// Whether this is a virtual machine whose host takes free memory back (a virtio balloon that
/// reports free pages). It takes back what is free by whole huge pages, and gives it again 4 KiB at
/// a time: the first touch of a huge page takes 3 to 5 ms there, of as many bytes in small pages,
/// which lie in pieces that no host takes back, a fifth. `root` is put before the system's paths
/// (tests).
bool memory_is_lent(const std::string& root = {});

/// How many bytes of a block of so many lie on huge pages, from its start on: whole huge pages
/// only, as the rest must not take more memory than it needs. Where memory is `lent`, short blocks
/// do without, and long ones have only so many that a program's start does not wait for long.
std::size_t bytes_on_huge_pages(std::size_t bytes, bool lent);

/// Gets the pages of memory that is about to be written all at once: two thirds of the time that
/// they take one by one, each at its first touch. Only pages that lie in the memory whole; memory
/// that has pages keeps them, and where the system has no such request nothing happens.
void get_pages(std::byte* begin, std::size_t bytes);
/// Memory that is got, then written in pieces of so many bytes lies in the L2 cache in between.
inline constexpr std::size_t bytes_got_at_once = std::size_t{256} * 1024;

}  // namespace rlx
