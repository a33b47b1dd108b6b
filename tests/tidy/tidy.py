#!/usr/bin/env python3
"""Style as a test: fails on what the house rules out, one line for each finding.

usage: tidy.py REPOSITORY           checks the tree; exit code 1 when something is wrong
       tidy.py REPOSITORY --draw    prints which room includes which, as the files really do
"""
import os
import re
import sys

SOURCE = (".cpp", ".hpp", ".h", ".py", ".cmake", ".sh")
SKIPPED = {"build", "third_party", ".git", ".cache", "__pycache__"}
LINES_WARN, LINES_FAIL, COLUMNS, SURFACE = 500, 800, 100, 3000
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LINK = re.compile(r"\]\(([^)#][^)]*)\)")
MACHINE_PATH = re.compile(r"(?<![\w.~$}\)*>-])/(?:work|farm|root|home/\w+|tmp/w)/")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def source_files(root):
    """Paths relative to root of all files of our own that the rules are about, pages excepted."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            script = folder.endswith(("/scripts", "/.ci"))
            if name.endswith(SOURCE) or name == "CMakeLists.txt" or script:
                yield path


def pages(root):
    """Paths relative to root of all Markdown pages of our own."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)


def read_table(root):
    """The include table of docs/architecture.md: room -> rooms that it may include."""
    table = {}
    page = os.path.join(root, "docs", "architecture.md")
    for line in read(page).splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        rooms = [re.findall(r"`([^`]+)`", c) for c in cells[:2]]
        if line.startswith("| `") and len(rooms) == 2 and len(rooms[0]) == 1:
            table[rooms[0][0]] = rooms[1]
    return table


def room_of(path, table):
    """The room that a file lies in: the longest of the table that holds it; * is one folder."""
    best = None
    for room in table:
        pattern = re.escape(room).replace(r"\*", "[^/]+")
        if re.match(pattern + "/", path) and (best is None or len(room) > len(best)):
            best = room
    return best


def own_folder(path, room):
    """The folder of this room that holds the file, its stars filled in."""
    return "/".join(path.split("/")[: room.count("/") + 1])


def resolve(root, path, name, generated):
    """The file that an #include means, relative to root; "" for one that the build makes."""
    if name.endswith(generated):
        return ""
    bases = ["src", "include", os.path.dirname(path), path.split("/")[0], "examples"]
    for base in bases:
        target = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, target)):
            return target
    return None


def includes(root, path):
    """(line number, name, file) of each #include of a file of ours; file is None if nowhere."""
    for number, line in enumerate(read(os.path.join(root, path)).splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        if quoted or name.startswith("rlx/"):
            target = resolve(root, path, name, (".pb.h",))
            if target != "":
                yield number, name, target


def may_include(path, target, table):
    room, other = room_of(path, table), room_of(target, table)
    if room is None or other is None:
        return False
    if own_folder(path, room) == own_folder(target, other):
        return True
    return other in table[room] or "*" in table[room]


def check_includes(root, path, table):
    if room_of(path, table) is None:
        yield f"{path}: lies in no room of docs/architecture.md"
        return
    for number, name, target in includes(root, path):
        if target is None:
            yield f"{path}:{number}: nothing is called \"{name}\""
        elif not may_include(path, target, table):
            yield (f"{path}:{number}: {room_of(path, table)} may not include {target} "
                   f"({room_of(target, table)}): see the table in docs/architecture.md")


def check_header_comment(path, lines):
    first = next((line for line in lines if not line.startswith("#!")), "")
    marks = {".cpp": "//", ".hpp": "//", ".h": "//", ".py": '"""'}
    mark = marks.get(os.path.splitext(path)[1], "#")
    if not first.startswith(mark):
        yield f"{path}:1: opens with no comment that says what the file is for"


def check_text(path, lines):
    if len(lines) > LINES_FAIL:
        yield f"{path}: {len(lines)} lines; the limit is {LINES_FAIL}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} columns; the limit is {COLUMNS}"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end of the line"
        if UNFINISHED.search(line):
            yield f"{path}:{number}: a mark of unfinished work"
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine"


def check_headers(path, lines):
    if path.endswith((".hpp", ".h")) and "#pragma once" not in lines:
        yield f"{path}: has no #pragma once"


def check_page(root, path):
    for number, line in enumerate(read(os.path.join(root, path)).splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine"
        for link in LINK.findall(line):
            target = os.path.join(root, os.path.dirname(path), link.split("#")[0])
            if "://" not in link and not os.path.exists(target):
                yield f"{path}:{number}: links to ({link}), which is not there"


def check_surface(root):
    folder = os.path.join(root, "include", "rlx")
    total = sum(len(read(os.path.join(folder, n)).splitlines()) for n in os.listdir(folder))
    if total > SURFACE:
        yield f"include/rlx: {total} lines; the public surface is at most {SURFACE}"


def check_table(table):
    """Rooms form no circle: each may be read before the ones that use it."""
    done, active = set(), []

    def visit(room):
        if room in active:
            yield "docs/architecture.md: rooms in a circle: " + " -> ".join(active + [room])
        elif room not in done:
            active.append(room)
            for other in table.get(room, []):
                if other != "*" and other != room:
                    yield from visit(other)
            active.pop()
            done.add(room)

    for room in table:
        yield from visit(room)


def findings(root):
    """All that is wrong in the tree, as sentences."""
    table = read_table(root)
    if not table:
        yield "docs/architecture.md: has no include table"
        return
    yield from check_table(table)
    yield from check_surface(root)
    for path in pages(root):
        yield from check_page(root, path)
    for path in source_files(root):
        lines = read(os.path.join(root, path)).splitlines()
        yield from check_header_comment(path, lines)
        yield from check_text(path, lines)
        yield from check_headers(path, lines)
        if path.endswith((".cpp", ".hpp", ".h")):
            yield from check_includes(root, path, table)


def remarks(root):
    for path in source_files(root):
        count = len(read(os.path.join(root, path)).splitlines())
        if LINES_WARN < count <= LINES_FAIL:
            yield f"{path}: {count} lines, more than {LINES_WARN}: worth a look"


def draw(root):
    table = read_table(root)
    edges = {}
    for path in source_files(root):
        room = room_of(path, table)
        if room and path.endswith((".cpp", ".hpp", ".h")):
            used = edges.setdefault(room, set())
            used |= {room_of(t, table) for _, _, t in includes(root, path) if t} - {None, room}
    for room in table:
        if room in edges:
            print(f"{room:20} -> {', '.join(sorted(edges[room])) or '-'}")


def main(arguments):
    if not arguments or len(arguments) > 2 or (len(arguments) == 2 and arguments[1] != "--draw"):
        sys.exit(__doc__)
    root = arguments[0]
    if len(arguments) == 2:
        return draw(root)
    for remark in remarks(root):
        print("remark:", remark)
    wrong = list(findings(root))
    for line in wrong:
        print(line)
    print(f"tidy: {len(list(source_files(root)))} files, {len(wrong)} findings")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
