"""Messages between clients of different makes, each with the tools that it has: Show 1 (a) and (b).

A question is sent while its receiver is in the middle of a tool call (`gate`), so that what it reads it reads after
that call. What the question says makes the receiver's model answer; the answer is what the sender's model is told next.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import Make
from tests.clients.dialects import Call
from tests.clients.gate import TOOL
from tests.clients.launch import Agent, House, Session
from tests.clients.model import SECONDS, Asked, call, say

QUESTION, ANSWER = "which column is it", "it is tenant_id"

ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

POSTROOM = ("postroom/list_agents", "postroom/send_message")
"""Postroom's tools for what a client's own are for: the one that lists, the one that sends."""


def question(to: str, sends: str = POSTROOM[1]) -> str:
    """A message that makes whoever reads it answer, with the tool that it has."""
    return f"{QUESTION} {call(sends, to=to, message=ANSWER, summary='the column')} {say('ANSWERED')}"


def ask(asking: Session, tools: tuple[str, ...], to: str, text: str) -> Asked:
    """An agent lists and sends; returns the request that brought what its tool said of the message."""
    lists, sends = tools
    message = call(sends, to=to, message=text, summary="about the column")
    sent = asking.turn(f"{call(lists)} {message} {say('SENT')}", "SENT")
    assert to in next(item.text for item in sent.items if item.role == "result")
    return sent


def sent_id(sent: Asked) -> str:
    """The id that a tool for sending gave."""
    result = [item.text for item in sent.items if item.role == "result"][-1]
    found = ID.search(result)
    assert found, result
    return found[0]


def reads_after_its_call(agent: Agent) -> None:
    """What was sent during its call of the gate stands in the very request that brought the result of that call."""
    called = agent.model.wait(
        lambda asked: isinstance(asked.step, Call) and asked.step.tool.name.endswith("pass"),
        SECONDS,
        "it never called the gate",
    )
    agent.model.told("passed", after=called.number).where(QUESTION)


def hears_the_answer(agent: Agent) -> None:
    """Its model is told the answer, and not only by the question that asks for it."""
    agent.model.wait(
        lambda asked: any(
            ANSWER in item.text and QUESTION not in item.text
            for item in asked.items
            if item.role not in ("assistant", "call")
        ),
        SECONDS,
        "it was never told the answer",
    )


@contextmanager
def plain(house: House, name: str) -> Generator[subprocess.Popen[str]]:
    """A session of the library, which reads and obeys."""
    program = str(Path(__file__).with_name("plain.py"))
    with subprocess.Popen(
        [sys.executable, program, name],
        env=house.environ,
        cwd=house.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def pair(*names: str) -> list[object]:
    """Each of these with Claude Code."""
    return [pytest.param(name, marks=pytest.mark.needs("claude-code", name)) for name in names]


@pytest.mark.parametrize("name", pair("codex", "gemini-cli", "qwen-code", "opencode"))
@pytest.mark.rule("09.13", "09.5")
def test_claude_codes_own_tools_reach_a_client_in_its_turn(
    name: str, home_of_all: House, agent: Make
) -> None:
    house = home_of_all
    asking, answering = agent("claude-code"), agent(name)
    house.setup("claude-code", name)
    with answering.opened() as receiver, asking.opened() as claude:
        receiver.settle()
        claude.settle()
        to = house.row(name)["name"]
        receiver.prompt(f"{call(TOOL)} {say('WORKED')}")
        with house.gate.reached():
            sent = ask(claude, asking.native, to, question("claude-web"))
            if answering.pushed:
                house.traced(to, sent_id(sent), "passed")
        reads_after_its_call(answering)
        answering.model.said("ANSWERED")
        hears_the_answer(asking)
        last = "passed" if answering.pushed else "consumed"
        house.traced(to, sent_id(sent), "received from claude-web", "accepted", last)


@pytest.mark.needs("claude-code")
@pytest.mark.rule("09.13")
def test_claude_codes_own_tools_reach_a_plain_session(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    asking = agent("claude-code")
    house.setup("claude-code")
    with plain(house, "plain") as session, asking.opened() as claude:
        claude.settle()
        ask(claude, asking.native, "plain", question("claude-web"))
        assert session.stdout is not None
        assert QUESTION in session.stdout.readline()
        hears_the_answer(asking)


@pytest.mark.parametrize("name", pair("codex", "gemini-cli", "qwen-code", "opencode"))
@pytest.mark.rule("09.13", "09.2")
def test_a_client_reaches_a_claude_code_that_knows_nothing_of_postroom(
    name: str, home_of_all: House, agent: Make
) -> None:
    """It is idle and wakes; it answers with its own tool, to the address that the message came from."""
    house = home_of_all
    house.desk.settings(publishTo=["claude-code"])
    asking, answering = agent(name), agent("claude-code")
    house.setup(name)
    with asking.opened() as sender, answering.opened() as claude:
        sender.settle()
        claude.turn(say("HERE"), "HERE")
        mine = house.row(name)["name"]
        sent = ask(sender, POSTROOM, "claude-web", question(mine, answering.native[1]))
        answering.model.told(QUESTION)
        answering.model.said("ANSWERED")
        assert "written" in [item.text for item in sent.items if item.role == "result"][-1]
        house.traced(mine, sent_id(sent), "written")
        sender.turn(say("NEXT"), "NEXT")
        hears_the_answer(asking)


OTHERS = ("codex", "gemini-cli", "qwen-code", "opencode")


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        pytest.param(one, other, marks=pytest.mark.needs(one, other))
        for one in OTHERS
        for other in OTHERS
        if one != other
    ],
)
def test_any_two_that_are_set_up_reach_each_other(
    asks: str, answers: str, home_of_all: House, agent: Make
) -> None:
    house = home_of_all
    asking, answering = agent(asks), agent(answers)
    house.setup(asks, answers)
    with asking.opened() as sender, answering.opened() as receiver:
        sender.settle()
        receiver.settle()
        mine, to = house.row(asks), house.row(answers)["name"]
        receiver.prompt(f"{call(TOOL)} {say('WORKED')}")
        with house.gate.reached():
            sent = ask(sender, POSTROOM, to, question(mine["name"]))
            if answering.pushed:
                house.traced(to, sent_id(sent), "passed")
        answering.model.told(QUESTION)
        answering.model.said("ANSWERED")
        if not mine["wakes"]:
            sender.turn(say("NEXT"), "NEXT")
        hears_the_answer(asking)


@pytest.mark.needs("qwen-code")
@pytest.mark.rule("09.14")
def test_qwen_codes_own_tools_reach_a_plain_session(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.settings(publishTo=["qwen-code"])
    asking = agent("qwen-code")
    with plain(house, "plain") as session, asking.opened() as qwen:
        qwen.turn(say("HERE"), "HERE")
        ask(qwen, asking.native, "plain", question(house.row("qwen-code")["name"]))
        assert session.stdout is not None
        assert QUESTION in session.stdout.readline()
        hears_the_answer(asking)


@pytest.mark.needs("qwen-code", "codex")
@pytest.mark.rule("09.14")
def test_qwen_codes_own_tools_reach_a_codex_in_its_turn(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.settings(publishTo=["qwen-code"])
    asking, answering = agent("qwen-code"), agent("codex")
    house.setup("codex")
    with answering.opened() as codex, asking.opened() as qwen:
        codex.settle()
        qwen.turn(say("HERE"), "HERE")
        to, back = house.row("codex")["name"], house.row("qwen-code")["name"]
        codex.prompt(f"{call(TOOL)} {say('WORKED')}")
        with house.gate.reached():
            ask(qwen, asking.native, to, question(back))
        reads_after_its_call(answering)
        hears_the_answer(asking)
