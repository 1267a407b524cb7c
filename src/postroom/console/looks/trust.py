"""Looks whether Codex runs the hooks of Postroom: it runs none that nobody has trusted, and says nothing about that.

What a person trusted stands in its `config.toml`, under `hooks.state`: for the path of `hooks.json`, the event, the
place of the group and the place of the hook a hash of what the hook then was (09.5). Nothing is ever written there.

What is weak: the hash is computed as version 0.171 does it. Another version may do it otherwise, so what differs counts
only where no hook of a session was heard.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from postroom.console.setting_up.pieces import hook_word

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What Codex makes of our hooks, by their words.

    Attributes:
        missing: nobody has trusted them.
        changed: they are not what somebody trusted.
        off: they were switched off by themselves.
    """

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()


def look(path: str, hooks: Any, config: Any) -> Trust:
    """What is trusted of our hooks. Never raises for what the files say.

    Args:
        path: of `hooks.json`.
        hooks: what that says.
        config: what `config.toml` says.
    """
    state = {
        os.path.realpath(file) + at: value
        for key, value in _object(_object(_object(config).get("hooks")).get("state")).items()
        for file, at in (_parted(key),)
    }
    missing: list[str] = []
    changed: list[str] = []
    off: list[str] = []
    for word, at, digest in _ours(hooks):
        said = _object(state.get(os.path.realpath(path) + at))
        if said.get("enabled") is False:
            off.append(word)
        elif not said.get("trusted_hash"):
            missing.append(word)
        elif said["trusted_hash"] != digest:
            changed.append(word)
    return Trust(missing=tuple(missing), changed=tuple(changed), off=tuple(off))


def _parted(key: str) -> tuple[str, str]:
    """The path of a file, and the place in it, of a key such as `/x/hooks.json:stop:0:1`."""
    parts = key.rsplit(":", 3)
    return parts[0], f":{':'.join(parts[1:])}"


def _ours(hooks: Any) -> Iterator[tuple[str, str, str]]:
    """Each hook of ours: its word, its place, its hash."""
    for event, groups in _object(_object(hooks).get("hooks")).items():
        called = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(_array(groups)):
            for place, entry in enumerate(_array(_object(group).get("hooks"))):
                if word := hook_word(entry, "codex"):
                    yield word, f":{called}:{at}:{place}", digest_of(called, _object(group), _object(entry))


def digest_of(event: str, group: dict[str, Any], entry: dict[str, Any]) -> str:
    """The hash by which Codex knows a hook again.

    Args:
        event: in its spelling of `hooks.state`, such as `session_start`.
        group: in which the hook stands; its matcher counts.
        entry: the hook.
    """
    hook = {"async": False, **entry}
    identity = {"event_name": event, "hooks": [hook]}
    if group.get("matcher") is not None:
        identity["matcher"] = group["matcher"]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _array(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
