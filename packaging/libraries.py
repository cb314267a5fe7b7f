"""libraries.py - what wheel.py and bundle.py share: they put copies of all libraries that Toeplab's
files link beside these files, which find them from where they lie."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4")  # of processors; the first is for any
GLIBC = re.compile(r"(lib(c|m|dl|pthread|rt|resolv|gcc_s)|ld-linux.*)\.so\b")  # any system has them
NETWORK = re.compile(r"lib(curl|crypto)\b")
ELSEWHERE = re.compile(r"lib(toeplab|cudart\.|cublas|cufft\.)")  # ours, and CUDA's


def output(*words) -> str:
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def die(text: str) -> None:
    sys.exit(f"{Path(sys.argv[0]).stem}: {text}")


def copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


# ---- The libraries of others --------------------------------------------------------------------


def needed(path: Path) -> list:
    return [n for n in output("patchelf", "--print-needed", path).split() if not GLIBC.match(n)]


def offline(hdf5: Path, lib: Path, scratch: Path) -> str:
    """Makes a library with the functions of libcurl and OpenSSL that libhdf5 is linked with.

    libhdf5 uses them for files on Amazon S3, which Toeplab never opens. This omits both libraries
    and 26 that they need, among them Kerberos and LDAP, which nobody would update. A call
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
            if ELSEWHERE.match(name):
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
        place = "$ORIGIN/" + os.path.relpath(lib, path.parent)
        if change:
            output("patchelf", *change, path)
        output("patchelf", "--set-rpath", place, path)  # patchelf 0.14 corrupts both done at once
    return originals


def package_of(library: Path) -> str:
    """Returns the Debian package of a file, which may be registered below /lib or /usr/lib; "" if
    it is unknown."""
    if not shutil.which("dpkg-query"):
        return ""
    for path in (library, Path(str(library).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", str(path)], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0]
    return ""


def place_licences(source: Path, originals: list, info: Path) -> list:
    """Copies the licences of the libraries, and lists their packages. Returns the libraries whose
    package is unknown."""
    folder, table = info / "licenses", []
    copy(source / "LICENSE", folder / "LICENSE")
    common, unknown = set(), []
    for library in sorted(originals):
        package = package_of(library)
        if not package:
            unknown.append(library)
            table.append(f"{library.name}: {library}, of an unknown package")
            continue
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
        "The libraries of others in the folder lib, as the distribution has them, their packages and\n"
        "the packages of their sources. Beside this file are their licences.\n\n"
        + "\n".join(table) + "\n")
    return unknown


def glibc(package: Path) -> int:
    """Returns the minor version of glibc 2 that the files need, from their symbol versions."""
    files = [p for p in package.rglob("*") if p.is_file()
             and (".so" in p.name or p.parent.name == "bin")]
    return max(int(minor) for path in files
               for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes()))
