"""The environment is used only when it is whole, and is made once however many want it."""

import json
import threading
from pathlib import Path

import pytest

from engine import environment, image, install, models, server
from engine.environment import EngineEnvironment


@pytest.fixture(autouse=True)
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REASONINGPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environment.sys, "platform", "linux")
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    return tmp_path / "cache"


class Installer:
    """Stands for the recipe, which takes a minute: makes what the marker describes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed: list[Path] = []
        monkeypatch.setattr(install, "install", self)

    def __call__(self, prefix: Path, progress: object) -> None:
        self.installed.append(prefix)
        assert not prefix.exists()
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin" / "python").write_text("")
        facts = {"base_prefix": "/opt/python", "site_packages": f"{prefix}/lib", "shared_library_dir": None, "key": "k"}
        (prefix / install.MARKER).write_text(json.dumps(facts))


def test_second_use_installs_nothing(monkeypatch: pytest.MonkeyPatch, cache_root: Path) -> None:
    installer = Installer(monkeypatch)
    first = environment.ensure()
    assert environment.ensure() == first
    assert installer.installed == [cache_root / f"engine-{install.key()}"]
    assert first.base_prefix == Path("/opt/python")


def test_several_at_once_install_once(monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch)
    threads = [threading.Thread(target=environment.ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(installer.installed) == 1


def test_unfinished_install_is_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch)
    said: list[str] = []
    prefix = environment.ensure().prefix
    (prefix / install.MARKER).unlink()
    environment.ensure(said.append)
    assert len(installer.installed) == 2
    assert "removing an unfinished or broken install" in said[0]


def test_half_written_marker_does_not_count_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch)
    marker = environment.ensure().prefix / install.MARKER
    marker.write_text(marker.read_text()[:10])
    environment.ensure()
    assert len(installer.installed) == 2


def test_removed_base_python_means_a_new_install(monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch)
    python = environment.ensure().python
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    environment.ensure()
    assert len(installer.installed) == 2


def test_unsupported_platform_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "aarch64")
    with pytest.raises(install.EngineUnavailableError, match="Linux on x86-64; this is linux aarch64"):
        environment.ensure()


def test_missing_uv_is_reported(monkeypatch: pytest.MonkeyPatch, cache_root: Path) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(install.EngineUnavailableError, match="pip install uv"):
        install.install(cache_root / "engine", print)


def test_failing_installer_is_reported_and_leaves_no_marker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho no space left\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    said: list[str] = []
    with pytest.raises(install.EngineUnavailableError, match=r"exit code 2\); uv said why above"):
        environment.ensure(said.append)
    assert "no space left" in said
    assert environment._installed(tmp_path / "cache" / f"engine-{install.key()}") is None


def engine_at(prefix: Path, base: str, libraries: str | None = None) -> EngineEnvironment:
    return EngineEnvironment(
        python=prefix / "bin/python",
        vllm=prefix / "launch/vllm",
        prefix=prefix,
        base_prefix=Path(base),
        site_packages=prefix / "lib",
        key="k",
        shared_library_dir=Path(libraries) if libraries else None,
    )


def test_pod_gets_the_environment_its_python_and_usr(tmp_path: Path) -> None:
    mounts = image.pod_mounts(engine_at(tmp_path, "/opt/python"))
    assert [mount.mount_path for mount in mounts[:3]] == [str(tmp_path), "/opt/python", "/usr"]


def test_system_python_needs_no_mount_of_its_own(tmp_path: Path) -> None:
    assert [mount.mount_path for mount in image.pod_mounts(engine_at(tmp_path, "/usr"))[:2]] == [str(tmp_path), "/usr"]


def test_linked_folder_is_mounted_under_the_name_that_scripts_use(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    first = image.pod_mounts(engine_at(tmp_path / "link", "/usr"))[0]
    assert (first.host_path, first.mount_path) == (str(tmp_path / "real"), str(tmp_path / "link"))


def test_image_finds_vllm_and_libpython(tmp_path: Path) -> None:
    content = image.content(engine_at(tmp_path, "/usr/local", "/usr/local/lib"), {"/models": tmp_path})
    assert content.env["PATH"].split(":")[:2] == [str(tmp_path / "launch"), str(tmp_path / "bin")]
    assert content.env["LD_LIBRARY_PATH"] == "/usr/local/lib"
    assert content.mounts[-1] == image.HostMount(str(tmp_path), "/models")
    assert (
        content.symlinks.items()
        <= {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}.items()
    )
    assert not [name for name in (*content.files, *content.symlinks) if name.startswith("/")]


def test_unknown_model_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no tiny model 'huge'; there are tiny-qwen3, tiny-random"):
        models.ensure_tiny("huge")


def test_server_that_ends_early_is_reported_with_its_last_words(tmp_path: Path) -> None:
    launcher = tmp_path / "launch" / "vllm"
    launcher.parent.mkdir()
    launcher.write_text('#!/bin/sh\necho "ValueError: boom with $*" >&2\nexit 3\n')
    launcher.chmod(0o755)
    with (
        pytest.raises(
            server.ServerFailedError, match=r"ended with 3 before it was ready:\nValueError: boom with serve m -x"
        ),
        server.serve("m", ["-x"], engine=engine_at(tmp_path, "/usr")),
    ):
        pass


def test_server_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    launcher = tmp_path / "launch" / "vllm"
    launcher.parent.mkdir()
    launcher.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    launcher.chmod(0o755)
    with (
        pytest.raises(server.ServerFailedError, match="not ready after 1 s"),
        server.serve("m", [], engine=engine_at(tmp_path, "/usr"), deadline_s=1),
    ):
        pass
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
