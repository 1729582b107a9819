"""The walls between the rooms: who may import whom, and what stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "relcore").rglob("*.py"))

# Imports run one way, down this list. A module may import what stands on a lower floor, or beside it on its own.
FLOORS = (
    ("__main__", "cli", "worker"),
    ("jobs", "experiments", "stitchings", "comparison", "sessions", "export", "report"),
    ("runs",),
    ("pipeline",),
    ("analysis", "stitching"),
    ("metrics", "methods", "preprocess"),
    ("samples", "loading", "pictures"),
    ("seeds", "formats", "store", "projection"),
    ("space", "ops", "memory", "parallel", "colours"),
    ("errors",),
)
FLOOR = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(path: Path, *, lazy: bool = True) -> set[str]:
    """Dotted names a file imports when it runs. ``lazy`` adds those inside functions."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if is_type_checking(node):
            return
        if not lazy and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(base + ([node.module] if node.module else []))
            found.update(f"{base}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(path.read_text(), str(path)))
    return found


def tops(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def rooms(names: set[str]) -> set[str]:
    """The rooms of relcore among dotted names; a bare name of the package itself, such as a version, is none."""
    return {
        parts[1] for name in names if (parts := name.split("."))[0] == "relcore" and parts[1:] and parts[1] in FLOOR
    }


def test_the_reader_of_imports_sees_every_form(tmp_path, monkeypatch):
    file = tmp_path / "relcore" / "sub" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from typing import TYPE_CHECKING\nimport os.path as p\nfrom . import near\nfrom ..ops.linalg import polar\n"
        "if TYPE_CHECKING:\n    import streamlit\ndef f():\n    import torch\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    eager = {"typing.TYPE_CHECKING", "os.path", "relcore.sub.near", "relcore.ops.linalg.polar"}
    assert imports(file, lazy=False) == eager
    assert imports(file) == eager | {"torch"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_relcore_knows_no_screen(path):
    screen = {"streamlit", "plotly", "pages", "app"}
    if path.name == "report.py":
        screen.remove("plotly")
    assert not tops(imports(path)) & screen


@pytest.mark.parametrize("path", sorted((ROOT / "relcore" / "ops").glob("*.py")), ids=module_of)
def test_ops_import_torch_and_numpy_alone(path):
    names = imports(path)
    foreign = tops(names) - set(sys.stdlib_module_names) - {"torch", "numpy", "relcore"}
    assert not foreign
    assert rooms(names) <= {"ops"}


@pytest.mark.parametrize("path", [f for f in FILES if f != ROOT / "relcore" / "__init__.py"], ids=module_of)
def test_imports_run_one_way(path):
    room = path.relative_to(ROOT / "relcore").parts[0].removesuffix(".py")
    assert room in FLOOR, f"{room} is a new room: give it a floor in FLOORS"
    upward = {other for other in rooms(imports(path)) if other != room and FLOOR[other] < FLOOR[room]}
    assert not upward


@pytest.mark.parametrize("path", sorted((ROOT / "relcore" / "methods").glob("*.py")), ids=module_of)
def test_method_files_load_torch_only_in_their_functions(path):
    assert "torch" not in tops(imports(path, lazy=False))


LIGHT = [
    "relcore",
    *(
        f"relcore.{room}"
        for room in (
            "methods",
            "jobs",
            "runs",
            "store",
            "loading",
            "formats",
            "seeds",
            "projection",
            "parallel",
            "experiments",
            "cli",
        )
    ),
]


@pytest.mark.parametrize("module", LIGHT)
def test_what_the_server_imports_is_light(module):
    """In a fresh interpreter: neither torch nor what drags it in."""
    code = (
        f"import sys, {module}; from relcore import methods;"
        "[methods.method_class(n) for n in methods.REGISTRY];"
        "heavy = ('torch', 'sklearn', 'ot', 'umap', 'streamlit', 'plotly', 'joblib', 'distributed');"
        "print([m for m in heavy if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_pages_do_not_import_torch():
    pages = [ROOT / "app.py", *(ROOT / "pages").rglob("*.py")]
    heavy = {p.name: tops(imports(p)) & {"torch", "ot", "sklearn", "umap"} for p in pages}
    assert not {name: found for name, found in heavy.items() if found}
