"""The languages in which coding agents ask their models, both ways: a request to what was said, a step to an answer.

There are four: Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's generateContent. Each is
read into the same few items, so that a test asserts on what a model was told and not on who told it how, and each
speaks as much of its own language as the clients need: one text, or one call of a tool, streamed or whole.

Weak: written from what the clients of `install.PARTNERS` send and take, in those versions, and from nothing else.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

__all__ = ["DIALECTS", "Body", "Call", "Dialect", "Item", "Reply", "Say", "Step", "Tool"]

Body = dict[str, Any]
"""A JSON object of one of the services."""

NOTHING: Body = {}
NOTHINGS: list[Body] = []

Role = Literal["system", "user", "assistant", "call", "result"]
"""Who says it: rules and context, whoever types, the model, the model's call of a tool, what the tool gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a request tells the model: who says it, and its text."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as the request offers it; `space` is the namespace in which it lies, where the service has such."""

    name: str
    space: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The model calls a tool."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """The model says something, and its turn ends."""

    text: str


Step = Call | Say


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the service sends back.

    Attributes:
        whole: the answer where nothing is streamed; None where it is.
        events: the stream.
        named: whether each event of the stream carries its own type as a name.
        end: a last line of the stream that is no JSON.
    """

    whole: Body | None = None
    events: tuple[Body, ...] = ()
    named: bool = False
    end: str = ""


class Dialect(Protocol):
    """One language."""

    def path(self) -> re.Pattern[str]:
        """Which paths it is asked under."""
        ...

    def read(self, body: Body) -> tuple[list[Item], list[Tool]]:
        """What a request says, in order, and which tools it offers."""
        ...

    def speak(self, step: Step, body: Body, path: str) -> Reply:
        """The answer to it."""
        ...


def _id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:20]


def _dicts(value: object) -> Iterator[Body]:
    """The objects of a list; nothing where it is none."""
    if isinstance(value, list):
        for each in cast("list[object]", value):
            if isinstance(each, dict):
                yield cast("Body", each)


def _text(content: object) -> str:
    """The text of a field that is a text, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part) for part in cast("list[object]", content))
    if isinstance(content, dict):
        part = cast("Body", content)
        return _text(part.get("text", part.get("content", "")))
    return ""


def _plain(role: object) -> Role:
    """A service's word for who speaks, as ours; whoever sets rules, by whatever name, is the system."""
    if role in ("user", "assistant"):
        return role
    return "assistant" if role == "model" else "system"


class Messages:
    """Anthropic's Messages: Claude Code."""

    def path(self) -> re.Pattern[str]:
        return re.compile(r"/messages$")

    def read(self, body: Body) -> tuple[list[Item], list[Tool]]:
        items: list[Item] = []
        for message in _dicts(body.get("messages")):
            role = _plain(message.get("role"))
            content = message.get("content")
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(_dicts(content))
            for part in parts:
                match part.get("type"):
                    case "text":
                        items.append(Item(role=role, text=str(part.get("text", ""))))
                    case "tool_use":
                        items.append(
                            Item(role="call", text=json.dumps([part.get("name"), part.get("input")]))
                        )
                    case "tool_result":
                        items.append(Item(role="result", text=_text(part.get("content"))))
                    case _:
                        pass
        return items, [Tool(name=str(tool.get("name"))) for tool in _dicts(body.get("tools"))]

    def speak(self, step: Step, body: Body, path: str) -> Reply:
        del path
        block: Body
        empty: Body
        match step:
            case Call():
                arguments = dict(step.arguments)
                block = {"type": "tool_use", "id": _id("toolu_"), "name": step.tool.name, "input": arguments}
                empty, stop = dict(block, input=NOTHING), "tool_use"
                delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            case Say():
                block = {"type": "text", "text": step.text}
                empty, stop = {"type": "text", "text": ""}, "end_turn"
                delta = {"type": "text_delta", "text": step.text}
        usage = {"input_tokens": 9, "output_tokens": 3}
        whole: Body = {
            "id": _id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }
        if not body.get("stream"):
            return Reply(whole=whole)
        ending = {"stop_reason": stop, "stop_sequence": None}
        return Reply(
            named=True,
            events=(
                {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
                {"type": "content_block_start", "index": 0, "content_block": empty},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": ending, "usage": usage},
                {"type": "message_stop"},
            ),
        )


class Responses:
    """OpenAI's Responses: Codex. Its tools may lie in a namespace, one for each MCP server."""

    def path(self) -> re.Pattern[str]:
        return re.compile(r"/responses$")

    def read(self, body: Body) -> tuple[list[Item], list[Tool]]:
        asked = body.get("input", [])
        parts = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(_dicts(asked))
        items: list[Item] = []
        for part in parts:
            kind = str(part.get("type", "message"))
            if kind == "message":
                items.append(Item(role=_plain(part.get("role")), text=_text(part.get("content"))))
            elif kind.endswith("_output"):
                items.append(Item(role="result", text=_text(part.get("output"))))
            elif kind.endswith("_call"):
                items.append(Item(role="call", text=json.dumps([part.get("name"), part.get("arguments")])))
        return items, list(self._tools(body))

    def _tools(self, body: Body) -> Iterator[Tool]:
        for tool in _dicts(body.get("tools")):
            name = str(tool.get("name", tool.get("type")))
            if tool.get("type") == "namespace":
                yield from (
                    Tool(name=str(each.get("name")), space=name) for each in _dicts(tool.get("tools"))
                )
            else:
                yield Tool(name=name)

    def speak(self, step: Step, body: Body, path: str) -> Reply:
        del path
        item: Body
        began: Body
        match step:
            case Call():
                said = json.dumps(dict(step.arguments))
                space = {"namespace": step.tool.space} if step.tool.space else {}
                item = {"type": "function_call", "id": _id("fc_"), "call_id": _id("call_"), **space}
                item |= {"name": step.tool.name, "arguments": said, "status": "completed"}
                began, field = {**item, "arguments": ""}, "function_call_arguments"
                part: Body = {}
            case Say():
                said = step.text
                part = {"type": "output_text", "text": said, "annotations": []}
                item = {"type": "message", "id": _id("msg_"), "role": "assistant", "content": [part]}
                item |= {"status": "completed"}
                began, field = dict(item, content=NOTHINGS), "output_text"
        usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
        answer: Body = {
            "id": _id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": body.get("model"),
            "output": [item],
            "usage": usage,
        }
        if not body.get("stream"):
            return Reply(whole=answer)
        where = {"item_id": item["id"], "output_index": 0}
        middle: Iterable[Body]
        key = "text" if part else "arguments"
        middle = (
            {"type": f"response.{field}.delta", **where, "content_index": 0, "delta": said},
            {"type": f"response.{field}.done", **where, "content_index": 0, key: said},
        )
        if part:
            opened = {"type": "response.content_part.added", **where, "content_index": 0}
            closed = {"type": "response.content_part.done", **where, "content_index": 0, "part": part}
            middle = ({**opened, "part": {**part, "text": ""}}, *middle, closed)
        events: tuple[Body, ...] = (
            {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**began, "status": "in_progress"},
            },
            *middle,
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": answer},
        )
        numbered = tuple({**event, "sequence_number": number} for number, event in enumerate(events))
        return Reply(events=numbered, named=True)


class Completions:
    """OpenAI's Chat Completions: Qwen Code and opencode."""

    def path(self) -> re.Pattern[str]:
        return re.compile(r"/chat/completions$")

    def read(self, body: Body) -> tuple[list[Item], list[Tool]]:
        items: list[Item] = []
        for message in _dicts(body.get("messages")):
            text = _text(message.get("content"))
            role = "result" if message.get("role") == "tool" else _plain(message.get("role"))
            items.append(Item(role=role, text=text))
            for call in _dicts(message.get("tool_calls")):
                called = cast("Body", call.get("function", {}))
                items.append(
                    Item(role="call", text=json.dumps([called.get("name"), called.get("arguments")]))
                )
        functions = (cast("Body", tool.get("function", {})) for tool in _dicts(body.get("tools")))
        return items, [Tool(name=str(function.get("name"))) for function in functions]

    def speak(self, step: Step, body: Body, path: str) -> Reply:
        del path
        message: Body
        match step:
            case Call():
                function = {"name": step.tool.name, "arguments": json.dumps(dict(step.arguments))}
                call = {"index": 0, "id": _id("call_"), "type": "function", "function": function}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
                finish = "tool_calls"
            case Say():
                message, finish = {"role": "assistant", "content": step.text}, "stop"
        common: Body = {"id": _id("chatcmpl-"), "created": int(time.time()), "model": body.get("model")}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return Reply(whole={**common, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk: Body = {**common, "object": "chat.completion.chunk"}

        def part(delta: Body, why: str | None) -> Body:
            return {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": why}]}

        last: Body = {**chunk, "choices": [], "usage": usage}
        return Reply(events=(part(message, None), part({}, finish), last), end="[DONE]")


class Generate:
    """Gemini's generateContent: Gemini CLI."""

    def path(self) -> re.Pattern[str]:
        return re.compile(r":(stream)?[gG]enerateContent$")

    def read(self, body: Body) -> tuple[list[Item], list[Tool]]:
        items: list[Item] = []
        for content in _dicts(body.get("contents")):
            role = _plain(content.get("role", "user"))
            for part in _dicts(content.get("parts")):
                if "functionResponse" in part:
                    given = cast("Body", part["functionResponse"]).get("response")
                    items.append(Item(role="result", text="\n".join(_strings(given))))
                elif "functionCall" in part:
                    items.append(Item(role="call", text=json.dumps(part["functionCall"])))
                elif "text" in part:
                    items.append(Item(role=role, text=str(part["text"])))
        declared = (_dicts(each.get("functionDeclarations")) for each in _dicts(body.get("tools")))
        return items, [Tool(name=str(tool.get("name"))) for each in declared for tool in each]

    def speak(self, step: Step, body: Body, path: str) -> Reply:
        part: Body
        match step:
            case Call():
                part = {"functionCall": {"name": step.tool.name, "args": dict(step.arguments)}}
            case Say():
                part = {"text": self._formed(step.text, body)}
        content = {"role": "model", "parts": [part]}
        answer: Body = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12},
        }
        return Reply(events=(answer,)) if ":stream" in path else Reply(whole=answer)

    def _formed(self, text: str, body: Body) -> str:
        """What it asks for besides a turn, it asks for as JSON: who speaks next, and how hard the task is."""
        wanted = cast("Body", body.get("generationConfig") or {})
        if wanted.get("responseMimeType") != "application/json":
            return text
        return json.dumps(
            {"reasoning": "as told", "next_speaker": "user", "complexity_score": 1, "model_choice": "flash"}
        )


def _strings(value: object) -> Iterator[str]:
    """Every text in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, object]", value).values():
            yield from _strings(each)
    elif isinstance(value, Sequence):
        for each in cast("Sequence[object]", value):
            yield from _strings(each)


DIALECTS: tuple[Dialect, ...] = (Messages(), Responses(), Completions(), Generate())
