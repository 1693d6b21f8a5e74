"""The wheel, built from the source archive and installed elsewhere, works without the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import ROOT, python


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel)
    return target


def run(installed: Path, tmp_path: Path, *arguments: str) -> str:
    return python(*arguments, added={"PYTHONPATH": str(installed)}, cwd=tmp_path).stdout


def test_an_installed_wheel_imports_and_finds_its_assets(installed, tmp_path):
    code = (
        "import paifuser_lab; from paifuser_lab._files import asset;"
        "print(paifuser_lab.__file__);"
        "print(*[asset(name) for name in ('notebooks/00_tour.ipynb', 'widgets/README.md', "
        "'kernels/README.md')], sep='\\n')"
    )
    lines = run(installed, tmp_path, "-c", code).splitlines()
    assert len(lines) == 4
    assert all(Path(line).is_relative_to(installed) for line in lines)


def test_an_installed_wheel_has_trained_weights_and_jupyterlab_s_defaults(installed, tmp_path):
    code = (
        "from paifuser_lab import zoo; from paifuser_lab.zoo import trained;"
        "trained.train = None;"
        "zoo.build('resnet18-digits-tiny');"
        "from paifuser_lab.cli.jupyterlab import CONFIG;"
        "print(*[path.name for path in CONFIG.rglob('*.json')])"
    )
    assert run(installed, tmp_path, "-c", code).split() == ["default_setting_overrides.json"]


def test_an_installed_wheel_has_its_command(installed, tmp_path):
    assert "compress" in run(installed, tmp_path, "-m", "paifuser_lab.cli", "run", "--help")
    assert (installed / "bin" / "paifuser-lab").is_file()


def test_an_installed_wheel_is_typed_and_has_no_caches(installed, tmp_path):
    assert (installed / "paifuser_lab" / "py.typed").is_file()
    assert not list((installed / "paifuser_lab" / "_sources").rglob("__pycache__"))
