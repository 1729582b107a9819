"""The README's promises: its commands and its Python work as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_ci_runs_the_test_command_word_for_word():
    command = blocks("sh")[1].strip()
    assert command.endswith("-m pytest")
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_first_command_installs_what_it_says_and_starts_the_app():
    command = blocks("sh")[0].strip()
    assert command.endswith("streamlit run app.py") and "-r requirements.txt" in command


def test_the_python_quickstart_runs(tmp_path, monkeypatch):
    (code,) = blocks("python")
    assert len(code.strip().splitlines()) <= 10
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours, seed = map(float, done.stdout.split("\n")[-2].split())
    assert ours > seed


def test_the_command_lines_run(tmp_path):
    lines = blocks("sh")[2].replace("\\\n", " ").replace("--out run", f"--out {tmp_path / 'run'}")
    for command in ("evaluate", "mismatch", "stitch", "report", "export"):
        lines = lines.replace(f"{command} run", f"{command} {tmp_path / 'run'}")
    for name in ("bank.parquet", "report.html", "exported"):
        lines = lines.replace(name, f"{tmp_path}/{name}")
    lines = lines.strip().splitlines()
    assert len(lines) == 8
    for line in lines:
        words = line.split()
        assert words[0] == "python"
        done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout.strip()
