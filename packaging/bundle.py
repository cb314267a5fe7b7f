#!/usr/bin/env python3
"""bundle.py - packs what `./lab bundle` has built, with all libraries that it links except glibc and
CUDA's, into an archive that runs wherever it is unpacked.

bundle.py [--tests] SOURCE BUILT FILE: BUILT has a build per level of processors (libraries.py); FILE
"" is a name with the version, in the current folder. --tests adds the tests for a GPU. Prints the
path of the archive, which appears only once it is complete.
"""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from libraries import LEVELS, copy, die, glibc, output, place_licences, place_others

BACKENDS = ("naive", "matrix", "fft", "rac", "ski", "fd")


def is_linked(path: Path) -> bool:
    """Whether a file is a program or a shared object, and not a link to one."""
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def place_own(built: Path, root: Path) -> dict:
    """Installs the lowest level and adds the others; returns the linked files, each with the
    build's file."""
    lowest, linked = built / LEVELS[0], {}
    done = subprocess.run(["cmake", "--install", str(lowest), "--prefix", str(root)], text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        die(f"cmake --install {lowest} fails: {done.stderr.strip()}")
    for path in filter(is_linked, root.rglob("*")):
        linked[path] = next(p for p in lowest.rglob(path.name) if is_linked(p))
    lib = root / "lib"
    for level in LEVELS[1:]:
        own = lib / "glibc-hwcaps" / level
        path = own / "libtoeplab.so.0"
        linked[copy(built / level / path.name, path)] = built / level / path.name
        for backend in BACKENDS:
            original = built / level / "backends" / f"{backend}.so"
            linked[copy(original, own / "toeplab" / "backends" / original.name)] = original
        for name in ("benches", "devices"):  # the same for all levels
            if (lib / "toeplab" / name).is_dir():
                (own / "toeplab" / name).symlink_to(f"../../../toeplab/{name}")
    return linked


def place_tests(source: Path, built: Path, root: Path) -> dict:
    """Copies what the tests for a GPU need; returns the emulated GPU, if there is one."""
    tests = root / "share" / "toeplab" / "tests"
    for name in ("lua", "torture"):
        shutil.copytree(source / "tests" / name, tests / name)
    for path in (source / "tests").iterdir():
        if path.suffix in (".h5", ".bpe"):
            copy(path, tests / path.name)
    emulated = built / LEVELS[0] / "tests" / "emulated.so"
    if not emulated.is_file():
        print("bundle: no C++ compiler was found, so the emulated GPU is left out", file=sys.stderr)
        return {}
    return {copy(emulated, root / "bin" / "tests" / emulated.name): emulated}


def describe(source: Path, root: Path) -> None:
    """Writes ABOUT: what this is and what it needs."""
    device = (root / "lib" / "toeplab" / "devices" / "cuda.so").is_file()
    done = subprocess.run(["git", "-C", str(source), "rev-parse", "HEAD"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    (root / "ABOUT").write_text(
        f"{root.name} for x86-64 Linux with glibc 2.{glibc(root)} or later.\n"
        + (f"Commit {done.stdout}" if done.returncode == 0 else "")
        + ("With the device cuda: it needs an NVIDIA driver and CUDA's libraries, which it finds\n"
           "beside PyTorch, in a toolkit or in the folders of TOEPLAB_CUDA.\n" if device else
           "Without the device cuda, because nvcc was not found where this was made.\n")
        + "Start: bin/toeplab doctor\n"
          "       bin/toeplab verify share/toeplab/tests/reference.h5\n"
          "       bin/toeplab run share/toeplab/experiments/quickstart.lua scale=smoke\n"
          "Licences of the libraries in lib: share/doc/toeplab/licenses\n")


def pack(root: Path, file: Path) -> None:
    """Writes the archive under another name first; the same files give the same bytes."""
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as raw, \
                gzip.GzipFile("", "wb", 9, raw, 0) as packed, \
                tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(root, root.name, filter=plain)  # in the order of names
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def main() -> None:
    words = sys.argv[1:]
    tests = words[0] == "--tests"
    source, built = (Path(word).resolve() for word in words[-3:-1])
    version = re.search(r"project\(toeplab VERSION ([\d.]+)",
                        (source / "CMakeLists.txt").read_text())[1]
    file = Path(words[-1] or f"toeplab-{version}-x86_64.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root", f"toeplab-{version}")
        linked = place_own(built, root)
        copy(source / "tests" / "reference.h5", root / "share/toeplab/tests/reference.h5")
        if tests:
            linked.update(place_tests(source, built, root))
        for path in linked:
            output("strip", "--strip-unneeded", path)
        originals = place_others(linked, root / "lib", Path(scratch))
        place_licences(source, originals, root / "share" / "doc" / "toeplab")
        describe(source, root)
        pack(root, file)
    print(file)


try:
    main()
except subprocess.CalledProcessError as problem:
    die(f"{' '.join(problem.cmd[:2])} ... fails with exit code {problem.returncode}")
except OSError as problem:
    die(str(problem))
