"""The stand-ins load into a real process: the system's own loader is the judge."""

import ctypes
import sys
import sysconfig
from pathlib import Path

import pytest

from engine import stubs

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sysconfig.get_platform() != "linux-x86_64", reason="ELF images for Linux on x86-64"
)


def load(directory: Path, image: bytes) -> ctypes.CDLL:
    path = directory / "libstand_in.so.1"
    path.write_bytes(image)
    return ctypes.CDLL(str(path))


def test_the_loader_takes_the_image_and_each_function_returns_1(tmp_path: Path) -> None:
    names = [f"function_{number}" for number in range(300)]
    library = load(tmp_path, stubs.build("libstand_in.so.1", {}, names))
    assert {getattr(library, name)() for name in names} == {1}
    with pytest.raises(AttributeError):
        library.function_300  # noqa: B018


def test_symbols_are_found_under_their_versions(tmp_path: Path) -> None:
    library = load(tmp_path, stubs.build("libstand_in.so.1", {"V_1": ["first", "both"], "V_2": ["second"]}, ["plain"]))
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]

    def has(name: str, version: str) -> bool:
        return find(library._handle, name.encode(), version.encode()) is not None

    assert has("first", "V_1")
    assert has("both", "V_1")
    assert has("second", "V_2")
    assert not has("second", "V_1")
    assert not has("first", "V_3")
    assert library.plain() == 1


@pytest.mark.parametrize(("name", "value"), [("", 0), ("exit", 0x6CF04), ("printf", 0x77905A6), ("syscall", 0xB09985C)])
def test_hash_is_the_one_the_loader_computes(name: str, value: int) -> None:
    assert stubs.elf_hash(name) == value


def test_imports_of_a_system_library_are_read_with_their_versions() -> None:
    library = next(Path("/lib/x86_64-linux-gnu", name) for name in ("libm.so.6", "libz.so.1"))
    imports = stubs.read_imports(library.resolve())
    assert "libc.so.6" in imports.needed
    assert any(
        soname == "libc.so.6" and version.startswith("GLIBC_") for _, soname, version in imports.symbols if version
    )


def test_file_other_than_a_shared_object_is_rejected(tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_bytes(b"INPUT(libother.so)" + bytes(100))
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        stubs.read_imports(text)


def test_result_may_be_another_one(tmp_path: Path) -> None:
    assert load(tmp_path, stubs.build("libstand_in.so.1", {"V": ["numa_available"]}, result=-1)).numa_available() == -1
