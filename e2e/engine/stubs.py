"""Stand-ins for libraries that the engine is linked with and never calls on these machines.

torch's x86-64 wheel is linked with cuBLAS, cuDNN, NCCL and others. The loader wants those files, their symbols and
their versions before it lets `import torch` go on; nothing in them runs unless there is a GPU. This module writes, for
each such library that is not installed, a shared object of a few kilobytes that exports just the symbols asked for.
Each of them returns 1, which means an error in nearly all of these interfaces.

vLLM's own kernels are linked with libnuma, which a fresh Debian does not have. Its stand-in says -1, "no NUMA here",
and vLLM then leaves memory where the kernel puts it.

Needs no compiler: the objects are ELF images put together here. Standard library only.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Libraries of the CUDA toolkit, by soname. All else that torch needs (libc, libgomp, ...) is left to the system.
# The driver (libcuda) stays absent: its absence is how the CUDA runtime knows that there is no GPU.
_CUDA_LIBRARY = re.compile(r"^lib(?!cuda\.)(cu|nv|nccl)\w*\.so\.\d+$")

# Symbols without a version do not say which library they are from; their prefix does.
_PREFIX_OF = {
    "libcusparseLt.so.0": "cusparseLt",
    "libnccl.so.2": "nccl",
    "libcurand.so.10": "curand",
    "libcufile.so.0": "cuFile",
}

_NUMA = "libnuma.so.1"

_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_SHT_VERNEED, _SHT_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF
_DT_NEEDED = 1
_PAGE = 0x1000


@dataclass(frozen=True)
class Imports:
    """What one shared object asks of others."""

    needed: tuple[str, ...]
    symbols: tuple[tuple[str, str | None, str | None], ...]  # name, soname and version (None where unversioned)


@dataclass
class _Exports:
    versions: dict[str, set[str]] = field(default_factory=dict)
    unversioned: set[str] = field(default_factory=set)


def read_imports(path: Path) -> Imports:
    """The sonames and undefined symbols of a 64-bit little-endian ELF shared object."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        if image[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        (sections_at,) = struct.unpack_from("<Q", image, 40)
        entry_size, count = struct.unpack_from("<HH", image, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + i * entry_size) for i in range(count)]
        by_type = {section[1]: section for section in sections}
        if _SHT_DYNSYM not in by_type or _SHT_DYNAMIC not in by_type:
            return Imports((), ())

        def text(strings_at: int, offset: int) -> str:
            end = image.find(b"\0", strings_at + offset)
            return image[strings_at + offset : end].decode()

        dynamic = by_type[_SHT_DYNAMIC]
        strings_at = sections[dynamic[6]][4]
        needed = tuple(
            text(strings_at, value)
            for tag, value in struct.iter_unpack("<qQ", image[dynamic[4] : dynamic[4] + dynamic[5]])
            if tag == _DT_NEEDED
        )
        verneed = by_type.get(_SHT_VERNEED)
        versions = {}
        if verneed is not None:
            versions = {
                index: (text(strings_at, file), text(strings_at, name))
                for index, file, name in _version_needs(image, verneed[4])
            }
        symbols_section, versym = by_type[_SHT_DYNSYM], by_type.get(_SHT_VERSYM)
        names_at = sections[symbols_section[6]][4]
        found = []
        for index in range(1, symbols_section[5] // 24):
            name, _info, _other, section = struct.unpack_from("<IBBH", image, symbols_section[4] + index * 24)
            if section != 0:
                continue
            version = struct.unpack_from("<H", image, versym[4] + index * 2)[0] & 0x7FFF if versym else 1
            found.append((text(names_at, name), *versions.get(version, (None, None))))
        return Imports(needed, tuple(found))


def _version_needs(image: mmap.mmap, need_at: int) -> Iterator[tuple[int, int, int]]:
    """Version index, and where in the strings the soname and the version's name are."""
    while True:
        _version, count, file, aux, following = struct.unpack_from("<HHIII", image, need_at)
        aux_at = need_at + aux
        for _ in range(count):
            _hash, _flags, index, name, next_aux = struct.unpack_from("<IHHII", image, aux_at)
            yield index, file, name
            aux_at += next_aux
        if following == 0:
            return
        need_at += following


def elf_hash(name: str) -> int:
    """The System V hash of a symbol or version name."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def build(
    soname: str, versions: Mapping[str, Iterable[str]], unversioned: Iterable[str] = (), *, result: int = 1
) -> bytes:
    """An x86-64 shared object with this soname, whose functions all return `result`.

    `versions` maps a symbol version to the names exported under it.
    """
    code = struct.pack("<BiB", 0xB8, result, 0xC3)  # mov eax, result; ret
    exported: list[tuple[str, int]] = [(name, 1) for name in sorted(set(unversioned))]
    for index, version in enumerate(sorted(versions), start=2):
        exported += [(name, index) for name in sorted(set(versions[version]))]
    strings, offset_of = bytearray(b"\0"), {"": 0}

    def intern(word: str) -> int:
        if word not in offset_of:
            offset_of[word] = len(strings)
            strings.extend(word.encode() + b"\0")
        return offset_of[word]

    names = [intern(name) for name, _ in exported]
    soname_at = intern(soname)
    version_definitions = bytearray()
    for index, version in enumerate([soname, *sorted(versions)], start=1):
        last = index == len(versions) + 1
        version_definitions += struct.pack(
            "<HHHHIII", 1, index == 1, index, 1, elf_hash(version), 20, 0 if last else 28
        )
        version_definitions += struct.pack("<II", intern(version), 0)

    count = len(exported) + 1
    buckets = [0] * max(1, count // 2)
    chains = [0] * count
    for index, (name, _) in enumerate(exported, start=1):
        bucket = elf_hash(name) % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    hashes = struct.pack(f"<II{len(buckets)}I{count}I", len(buckets), count, *buckets, *chains)
    version_indices = struct.pack(f"<{count}H", 0, *(version for _, version in exported))

    layout: dict[str, int] = {}
    position = 64 + 4 * 56
    sizes = {
        "hash": len(hashes),
        "symbols": count * 24,
        "strings": len(strings),
        "versions": len(version_indices),
        "definitions": len(version_definitions),
        "code": len(code),
    }
    for part, size in sizes.items():
        position = -(-position // 16) * 16
        layout[part] = position
        position += size
    text_size = position
    dynamic_at = -(-position // _PAGE) * _PAGE
    symbols = bytes(24) + b"".join(
        # STB_GLOBAL, STT_FUNC; the section index only has to say "defined"
        struct.pack("<IBBHQQ", name, 0x12, 0, 1, layout["code"], len(code))
        for name in names
    )
    dynamic_entries = [
        (14, soname_at),
        (4, layout["hash"]),
        (5, layout["strings"]),
        (6, layout["symbols"]),
        (10, len(strings)),
        (11, 24),
    ]
    if versions:
        dynamic_entries += [
            (0x6FFFFFF0, layout["versions"]),
            (0x6FFFFFFC, layout["definitions"]),
            (0x6FFFFFFD, len(versions) + 1),
        ]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in [*dynamic_entries, (0, 0)])

    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)

    def segment(kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
        return struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)

    header += segment(1, 5, 0, text_size, _PAGE)  # PT_LOAD, read and execute
    header += segment(1, 6, dynamic_at, len(dynamic), _PAGE)  # PT_LOAD, read and write
    header += segment(2, 6, dynamic_at, len(dynamic), 8)  # PT_DYNAMIC
    header += segment(0x6474E551, 6, 0, 0, 16)  # PT_GNU_STACK, not executable
    image = bytearray(dynamic_at + len(dynamic))
    parts = {
        "hash": hashes,
        "symbols": symbols,
        "strings": bytes(strings),
        "versions": version_indices,
        "definitions": bytes(version_definitions),
        "code": code,
    }
    image[: len(header)] = header
    for part, content in parts.items():
        image[layout[part] : layout[part] + len(content)] = content
    image[dynamic_at:] = dynamic
    return bytes(image)


def write_no_numa(site_packages: Path, directory: Path) -> Path:
    """Write the stand-in for libnuma, for vLLM's kernels, into a directory to be searched first (`LD_LIBRARY_PATH`)."""
    versions: dict[str, set[str]] = {}
    for kernels in sorted((site_packages / "vllm").glob("_C*.so")):
        for name, soname, version in read_imports(kernels).symbols:
            if soname == _NUMA and version is not None:
                versions.setdefault(version, set()).add(name)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _NUMA
    path.write_bytes(build(_NUMA, versions, result=-1))
    path.chmod(0o755)
    return path


def write_no_cuda(site_packages: Path) -> list[Path]:
    """Write a stand-in beside torch's libraries for each CUDA library that they need and that is not installed."""
    torch_libraries = site_packages / "torch" / "lib"
    installed = {path.name for path in (site_packages / "nvidia").glob("**/*.so*")}
    installed |= {path.name for path in torch_libraries.iterdir()}
    missing: dict[str, _Exports] = {}
    undefined: set[str] = set()
    for library in sorted(torch_libraries.glob("*.so*")):
        imports = read_imports(library)
        for soname in imports.needed:
            if _CUDA_LIBRARY.match(soname) and soname not in installed:
                missing.setdefault(soname, _Exports())
        for name, wanted_from, version in imports.symbols:
            if version is None:
                undefined.add(name)
            elif wanted_from in missing:
                missing[wanted_from].versions.setdefault(version, set()).add(name)
    written = []
    for soname, exports in missing.items():
        if prefix := _PREFIX_OF.get(soname):
            exports.unversioned |= {name for name in undefined if name.startswith(prefix)}
        path = torch_libraries / soname
        path.write_bytes(build(soname, exports.versions, exports.unversioned))
        path.chmod(0o755)
        written.append(path)
    return written
