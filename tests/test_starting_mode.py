"""The mode that Qwen Code starts in, before the first of its hooks says one (03.3, 09.12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.clients import load, qwen_code
from postroom.core import inbound


@pytest.fixture(autouse=True)
def _no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of this machine are none of the tests'."""
    monkeypatch.setattr(qwen_code, "SYSTEM", str(tmp_path / "etc"))


def put(folder: Path, mode: object, file: str = "settings.json") -> None:
    """Writes a settings file with this mode."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps({"tools": {"approvalMode": mode}}))


def mode(tmp_path: Path, *command: str, **environ: str) -> str:
    """The mode with which it starts in a project below the folder."""
    words = ("node", "cli.js", *command)
    given = {"HOME": str(tmp_path), **environ}
    client = load("qwen-code")
    return client.mode_in(words) or client.starts_in(words, given, str(tmp_path / "project"))


@pytest.mark.rule("03.3")
def test_where_nothing_names_one_it_is_its_own_default_and_asks(tmp_path: Path) -> None:
    assert mode(tmp_path) == "auto"
    assert inbound.MODES[mode(tmp_path)] == "prompting"


@pytest.mark.rule("03.1", "03.3", "09.12")
@pytest.mark.parametrize(
    ("word", "ours"),
    [("yolo", "yolo"), ("plan", "plan"), (" Auto_Edit ", "acceptEdits"), ("autoEdit", "acceptEdits")],
)
def test_its_settings_name_one_in_its_own_words(tmp_path: Path, word: str, ours: str) -> None:
    put(tmp_path / ".qwen", word)
    assert mode(tmp_path) == ours


@pytest.mark.rule("03.4")
def test_a_word_that_nobody_knows_makes_the_class_unknown(tmp_path: Path) -> None:
    put(tmp_path / ".qwen", "trusting")
    assert inbound.class_of(mode(tmp_path), interactive=True, bypass_available=False) == "unknown"


@pytest.mark.rule("09.12")
def test_the_strongest_file_counts_and_the_command_line_before_all(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    put(etc, "plan", "system-defaults.json")
    assert mode(tmp_path) == "plan"
    put(tmp_path / ".qwen", "auto-edit")
    assert mode(tmp_path) == "acceptEdits"
    put(tmp_path / "elsewhere", "default")
    assert mode(tmp_path, QWEN_HOME=str(tmp_path / "elsewhere")) == "default"
    put(tmp_path / "project" / ".qwen", "yolo")
    assert mode(tmp_path) == "yolo"
    put(etc, "default")
    assert mode(tmp_path) == "default"
    assert mode(tmp_path, QWEN_CODE_SYSTEM_SETTINGS_PATH=str(tmp_path / "none.json")) == "yolo"
    assert mode(tmp_path, "--approval-mode", "auto") == "auto"


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("flag", ["--bare", "--safe-mode"])
def test_a_start_that_reads_no_settings_asks(tmp_path: Path, flag: str) -> None:
    put(tmp_path / ".qwen", "yolo")
    assert mode(tmp_path, flag) == "default"
    assert mode(tmp_path, flag, "--yolo") == "yolo"


def test_a_settings_file_may_have_comments(tmp_path: Path) -> None:
    (tmp_path / ".qwen").mkdir()
    text = '{ // "tools": 1\n "url": "http://x", /* {\n */ "tools": {"approvalMode": "plan"} }'
    (tmp_path / ".qwen/settings.json").write_text(text)
    assert mode(tmp_path) == "plan"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"tools": 3}', '{"tools": {}}', '{"tools": {"approvalMode": 3}}', "[" * 100_000]
)
def test_what_is_no_settings_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen/settings.json").write_text(text)
    assert mode(tmp_path, QWEN_CODE_SYSTEM_SETTINGS_PATH="relative.json") == "auto"
