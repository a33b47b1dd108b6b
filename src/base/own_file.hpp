// The file that this code is in, and what tells builds of a file apart.
#pragma once

#include <string>

namespace rlx {

/// The path of the executable or library that holds this code; empty where it is not known.
std::string own_file();

/// A file's size and the time of its last change; empty where it is no regular file.
std::string identity_of_file(const std::string& path);

/// What tells this build from any other: the version, the identity of own_file(), and the build id
/// where the linker made one. Empty where nothing but the version is known.
const std::string& own_identity();

}  // namespace rlx
