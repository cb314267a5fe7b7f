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
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4")
BACKENDS = ("naive", "matrix", "rac", "ski", "fd")
GLIBC = re.compile(r"(lib(c|m|dl|pthread|rt|resolv|gcc_s)|ld-linux.*)\.so\b")  # any system has them
NETWORK = re.compile(r"lib(curl|crypto)\b")


def output(*words) -> str:
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def die(text: str) -> None:
    sys.exit(f"wheel: {text}")


def copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


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


# ---- The libraries of others --------------------------------------------------------------------


def needed(path: Path) -> list:
    return [n for n in output("patchelf", "--print-needed", path).split() if not GLIBC.match(n)]


def offline(hdf5: Path, lib: Path, scratch: Path) -> str:
    """Makes a library with the functions of libcurl and OpenSSL that libhdf5 is linked with.

    libhdf5 uses them for files on Amazon S3, which Toeplab never opens. This omits both libraries
    and 26 that they need, among them Kerberos and LDAP, which a wheel would never update. A call
    ends the process.
    """
    versions: dict = {}
    for name, version in re.findall(r" U (\w+)@((?:CURL|OPENSSL)_\w[\w.]*)", output(
            "nm", "-D", "--undefined-only", "--with-symbol-versions", hdf5)):
        versions.setdefault(version, []).append(name)
    name = "libhdf5-offline.so"
    functions = "".join(f"void {f}(void) {{ __builtin_trap(); }}\n"
                        for names in versions.values() for f in names)
    (scratch / "offline.c").write_text(functions)
    (scratch / "offline.map").write_text("".join(
        f"{version} {{ {' '.join(f + ';' for f in names)} }};\n"
        for version, names in versions.items()))
    output("cc", "-shared", "-fPIC", "-s", "-w", "-fno-builtin", f"-Wl,-soname,{name}",
           f"-Wl,--version-script={scratch}/offline.map", "-o", lib / name, scratch / "offline.c")
    return name


def place_others(linked: dict, lib: Path, scratch: Path) -> list:
    """Copies all libraries that the files link, directly or not, under names that no other package
    has, because one process may load several copies of a library. Returns the originals."""
    names, originals, queue = {}, [], list(linked.items())
    for path, original in queue:  # it grows
        found = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", original)))
        change = []
        for name in needed(path):
            if name.startswith("libtoeplab"):
                continue
            if NETWORK.match(name) and original.name.startswith("libhdf5"):
                if "offline" not in names:
                    names["offline"] = offline(original, lib, scratch)
                change += ["--replace-needed", name, names["offline"]]
                continue
            if name not in names:
                if name not in found:
                    die(f"{original} needs {name}, which is not here")
                real = Path(found[name]).resolve()
                digest = hashlib.sha256(real.read_bytes()).hexdigest()[:8]
                names[name] = name.replace(".so", f"-{digest}.so", 1)
                target = copy(real, lib / names[name])
                output("patchelf", "--set-soname", names[name], target)
                originals.append(real)
                queue.append((target, real))
            change += ["--replace-needed", name, names[name]]
        up = "/.." * (len(path.relative_to(lib.parent).parts) - 2)
        place = "$ORIGIN/../lib" if path.parent.name == "bin" else "$ORIGIN" + up
        if change:
            output("patchelf", *change, path)
        output("patchelf", "--set-rpath", place, path)  # patchelf 0.14 corrupts both done at once
    return originals


def package_of(library: Path) -> str:
    """Returns the Debian package of a file, which may be registered below /lib or /usr/lib."""
    for path in (library, Path(str(library).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", str(path)], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0]
    return die(f"no Debian package has {library}, so its licence is not known")


def place_licences(source: Path, originals: list, info: Path) -> None:
    """Copies the licences of the libraries in the wheel, and lists their packages."""
    folder, table = info / "licenses", []
    copy(source / "LICENSE", folder / "LICENSE")
    common = set()
    for library in sorted(originals):
        package = package_of(library)
        name = package.split(":")[0]
        text = Path("/usr/share/doc", name, "copyright")
        copy(text, folder / f"{name}.txt")
        common |= set(re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)",
                                 text.read_text(errors="replace")))
        table.append(f"{library.name}: " + output(
            "dpkg-query", "-W", "-f", "${Package} ${Version}, source ${source:Package} "
            "${source:Version}", package))
    for name in sorted(common):
        if Path("/usr/share/common-licenses", name).is_file():
            copy(Path("/usr/share/common-licenses", name), folder / "common-licenses" / name)
    (folder / "LIBRARIES.txt").write_text(
        "The libraries of others in toeplab/lib, as the distribution has them, their packages and\n"
        "the packages of their sources. Beside this file are their licences.\n\n"
        + "\n".join(table) + "\n")


# ---- The wheel ----------------------------------------------------------------------------------


def glibc(package: Path) -> int:
    """Returns the minor version of glibc 2 that the files need, from their symbol versions."""
    files = [p for p in package.rglob("*") if ".so" in p.name or p.parent.name == "bin"]
    return max(int(minor) for path in files
               for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes()))


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
        place_licences(source, originals, info)
        tag = f"py3-none-manylinux_2_{glibc(package)}_x86_64"
        describe(source, info, tag)
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"toeplab-{version}-{tag}.whl"
        pack(root, info, wheel)
    print(wheel)


main()
