#!/usr/bin/env python3
"""wheel.py - makes a Python wheel of the files that `./lab wheel` has built: the package, the
libraries, the backends that are not under the GPL, the program, and all libraries that these link.

wheel.py SOURCE BUILT FOLDER: BUILT has a build per level of processors. The libraries of the lowest
level are in toeplab/lib, the others in toeplab/lib/glibc-hwcaps/LEVEL, from which glibc's loader
takes them if the processor has that level. Prints the path of the wheel.
"""
import base64
import hashlib
import re
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from libraries import LEVELS, copy, die, glibc, output, place_licences, place_others

BACKENDS = ("naive", "matrix", "rac", "ski", "fd")


# ---- Toeplab's own files ------------------------------------------------------------------------


def place_own(source: Path, built: Path, package: Path) -> dict:
    """Copies our files; returns the linked ones, each with the build's file."""
    for path in (source / "python" / "toeplab").iterdir():
        if path.suffix in (".py", ".lua", ".typed"):
            copy(path, package / path.name)
    for path in (source / "lua" / "toeplab").rglob("*.lua"):
        copy(path, package / "share" / "lua" / "5.4" / path.relative_to(source / "lua"))
    lowest, linked = built / LEVELS[0], {}
    linked[copy(lowest / "toeplab", package / "bin" / "toeplab")] = lowest / "toeplab"
    for level in LEVELS:
        lib = package / "lib"
        if level != LEVELS[0]:
            lib = lib / "glibc-hwcaps" / level
        names = ["libtoeplab.so.0"] + (["libtoeplab-lab.so.0"] if level == LEVELS[0] else [])
        for name in names:
            linked[copy(built / level / name, lib / name)] = built / level / name
        for backend in BACKENDS:
            path = built / level / "backends" / f"{backend}.so"
            linked[copy(path, lib / "toeplab" / "backends" / path.name)] = path
    for path in linked:
        output("strip", "--strip-unneeded", path)
    return linked


# ---- The wheel ----------------------------------------------------------------------------------


def describe(source: Path, info: Path, tag: str) -> None:
    with open(source / "python" / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}",
             "License: MIT, and those of the libraries inside: licenses/LIBRARIES.txt"]
    lines += [f"Requires-Dist: {need}" for need in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'" for need in needs]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: packaging/wheel.py\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n")


def pack(root: Path, info: Path, wheel: Path) -> None:
    """Writes the archive; the same files give the same bytes."""
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            data, name = path.read_bytes(), path.relative_to(root).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, 0o755 if data[:4] == b"\x7fELF" else 0o644)
        name = f"{info.name}/RECORD"
        add(name, ("".join(record) + f"{name},,\n").encode(), 0o644)


def main() -> None:
    source, built, folder = (Path(word).resolve() for word in sys.argv[1:])
    version = re.search(r'^version = "(.*)"', (source / "python" / "pyproject.toml").read_text(),
                        re.MULTILINE)[1]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        package, info = root / "toeplab", root / f"toeplab-{version}.dist-info"
        linked = place_own(source, built, package)
        originals = place_others(linked, package / "lib", Path(scratch))
        unknown = place_licences(source, originals, info)
        if unknown:
            die(f"no Debian package has {unknown[0]}, so its licence is not known")
        tag = f"py3-none-manylinux_2_{glibc(package)}_x86_64"
        describe(source, info, tag)
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"toeplab-{version}-{tag}.whl"
        pack(root, info, wheel)
    print(wheel)


main()
