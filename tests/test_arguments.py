"""The grammar of the command line: every option, every mistake, and no word that is lost."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import arguments, ask
from postroom.arguments import (
    CLASSES,
    COMMANDS,
    EVERYWHERE,
    MODES,
    NOTE_LENGTH,
    SUMMARY_LENGTH,
    HelpAsked,
    call_of,
    first_line,
    help_of,
    moment,
    overview,
    parse,
)
from postroom.core import inbound
from postroom.core.contract import MAX_SUMMARY, Caller, Draft, validate
from postroom.core.envelope import WORDS_LIMIT
from postroom.errors import BadUsage

NOW = 1_796_033_702_123


def parsed(line: str) -> dict[str, Any]:
    """The values of a command line, as a shell would take it apart, those that are as always left out."""
    values = vars(parse(shlex.split(line)))
    verb = values["verb"]
    plain = {"verb": verb, "stdin": False} | {
        one.dest: one.default for one in (*COMMANDS[verb].takes, *EVERYWHERE)
    }
    return {key: value for key, value in values.items() if value != plain[key]}


def refused(*argv: str) -> BadUsage:
    """The usage error of a command line."""
    with pytest.raises(BadUsage) as caught:
        parse(argv)
    assert caught.value.code == "usage"
    return caught.value


# ── what each command takes ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("send bob hello", {"to": "bob", "text": "hello"}),
        ("send bob", {"to": "bob"}),
        ("send bob ''", {"to": "bob", "text": ""}),
        ("send 'bob [3fa9c1]' 'two words'", {"to": "bob [3fa9c1]", "text": "two words"}),
        ("send bob hello --summary s", {"to": "bob", "text": "hello", "summary": "s"}),
        ("send bob --summary s hello", {"to": "bob", "text": "hello", "summary": "s"}),
        ("send --summary s bob hello", {"to": "bob", "text": "hello", "summary": "s"}),
        ("send --summary=s bob --json hello", {"to": "bob", "text": "hello", "summary": "s", "json": True}),
        ("send bob --summary=a=b", {"to": "bob", "summary": "a=b"}),
        ("send bob --summary=", {"to": "bob", "summary": ""}),
        ("send bob --summary -x", {"to": "bob", "summary": "-x"}),
        ("send bob x --summary=--json", {"to": "bob", "text": "x", "summary": "--json"}),
        (
            "send bob x --in-reply-to m-1 --msg-id m-2",
            {"to": "bob", "text": "x", "in_reply_to": "m-1", "msg_id": "m-2"},
        ),
        ("send bob x --wait-reply 1.5", {"to": "bob", "text": "x", "wait_reply": 1.5}),
        ("send bob x --wait-reply 0", {"to": "bob", "text": "x", "wait_reply": 0.0}),
        ("send bob x --summary a --summary b", {"to": "bob", "text": "x", "summary": "b"}),
        ("send bob --notify-when-idle", {"to": "bob", "notify_when_idle": True}),
        ("inbox", {}),
        ("inbox --take --follow --json", {"take": True, "follow": True, "json": True}),
        ("wait", {}),
        ("wait --timeout 30", {"timeout": 30.0}),
        ("wait --timeout=31536000", {"timeout": 31_536_000.0}),
        ("held", {}),
        ("held --follow --json", {"follow": True, "json": True}),
        ("approve 0197ab", {"id": "0197ab"}),
        (
            "approve 0197ab --always --note 'look twice'",
            {"id": "0197ab", "always": True, "note": "look twice"},
        ),
        ("approve -- -x", {"id": "-x"}),
        ("deny 0197ab --note=no", {"id": "0197ab", "note": "no"}),
        ("explain m-1", {"msg_id": "m-1"}),
        ("explain --from alice --mode bypassing", {"from_": "alice", "mode": "bypassing"}),
        ("explain", {}),
        ("rules", {}),
        ("rules --revoke 3", {"revoke": "3"}),
        ("status --json", {"json": True}),
        ("status --mode plan", {"mode": "plan"}),
        ("rename 'new name'", {"name": "new name"}),
        ("list", {}),
        (
            "list api --kind agent --limit 3 --watch",
            {"text": "api", "kind": "agent", "limit": 3, "watch": True},
        ),
        ("peers --limit=7", {"limit": 7}),
        ("trace m-1 --mermaid", {"msg_id": "m-1", "mermaid": True}),
        (
            "log words --peer bob --since 10m --until 2026-11-30 --limit 5 --follow",
            {
                "text": "words",
                "peer": "bob",
                "since": "10m",
                "until": "2026-11-30",
                "limit": 5,
                "follow": True,
            },
        ),
        ("open", {}),
        (
            "open --name alice --mode default --kind bg --detach",
            {"name": "alice", "kind": "bg", "detach": True},
        ),
        ("open --resume some-id --ready-fd 7", {"resume": "some-id", "ready_fd": 7}),
        (
            "open --mode bypassPermissions --settings '{\"x\": 1}'",
            {"mode": "bypassPermissions", "settings": '{"x": 1}'},
        ),
        ("open -- ls -l", {"command": ("ls", "-l")}),
        ("open --name a -- run --name b -- c", {"name": "a", "command": ("run", "--name", "b", "--", "c")}),
        ("task list", {"action": "list"}),
        (
            "task create 'Rename it' --blocks 3,4",
            {"action": "create", "id_or_subject": "Rename it", "blocks": ["3", "4"]},
        ),
        (
            "task update 3 --subject s --description d --active-form a --owner '' --status deleted",
            {
                "action": "update",
                "id_or_subject": "3",
                "subject": "s",
                "description": "d",
                "active_form": "a",
                "owner": "",
                "status": "deleted",
            },
        ),
        (
            "task update 3 --blocked-by '1 2' --metadata '{\"a\": 1}'",
            {"action": "update", "id_or_subject": "3", "blocked_by": ["1", "2"], "metadata": {"a": 1}},
        ),
        ("team", {}),
        ("team join --team lead --as tester", {"action": "join", "team": "lead", "as_name": "tester"}),
        (
            "team send --each 'to all' --summary s",
            {"action": "send", "each": True, "text": "to all", "summary": "s"},
        ),
        ("team send --each -", {"action": "send", "each": True, "stdin": True}),
        ("team repair --teams-dir a --tasks-dir b", {"action": "repair", "teams_dir": "a", "tasks_dir": "b"}),
        ("team-join --team lead --as tester", {"team": "lead", "as_name": "tester"}),
        ("team-leave", {}),
        ("close --forget", {"forget": True}),
        ("doctor --json", {"json": True}),
        ("doors", {}),
        ("move", {}),
        ("setup codex --dry-run --json", {"client": "codex", "dry_run": True, "json": True}),
        ("setup --print generic", {"client": "generic", "print": True}),
        ("unsetup claude-code --yes", {"client": "claude-code", "yes": True}),
        ("mcp", {}),
        (
            "mcp --client codex --name alice --mode plan --settings x.json",
            {"client": "codex", "name": "alice", "mode": "plan", "settings": "x.json"},
        ),
        (
            "attend codex --client-pid 12 --client-start 345 --conversation c",
            {"client": "codex", "client_pid": 12, "client_start": "345", "conversation": "c"},
        ),
        ("tool list_agents", {"name": "list_agents"}),
        ("hook claude-code Stop", {"client": "claude-code", "event": "Stop"}),
        ("demo", {}),
    ],
)
def test_every_option(line: str, values: dict[str, Any]) -> None:
    assert parsed(line) == values


def test_the_examples_name_every_option() -> None:
    """The table above is whole."""
    [mark] = [mark for mark in test_every_option.pytestmark if mark.name == "parametrize"]  # pyright: ignore
    shown = " ".join(line for line, _ in mark.args[1])
    for verb, command in COMMANDS.items():
        assert f"{verb} " in f"{shown} ", verb
        for one in command.takes:
            assert not one.option or one.option in shown, one.option


@pytest.mark.rule("10.38")
def test_session_is_taken_out_before_and_is_part_of_the_grammar_all_the_same() -> None:
    """`ask.split_session` takes it; what is left of it is a mistake that is said."""
    assert parse(["status", "--session", "bob"]).session == "bob"
    assert "--session needs a value" in refused("status", "--session").message


# ── texts that look like something else (V10) ────────────────────────────────────────────────────


@pytest.mark.rule("10.37")
def test_rival_V10_help_behind_a_recipient_is_never_exit_0_with_nothing_sent() -> None:
    """Right behind the command it asks for help; anywhere else it is a mistake, and behind `--` a text."""
    for word in ("--help", "-h"):
        with pytest.raises(HelpAsked):
            parse(["send", word])
        error = refused("send", "b", word)
        assert "postroom send --help" in error.hint
        assert "--" in error.hint
        assert parse(["send", "b", "--", word]).text == word


@pytest.mark.parametrize("text", ["-5", "-x", "--frob", "--frob=x", "-", "--", "---", "-rf"])
def test_rival_V10_a_text_that_begins_with_a_dash_is_sent_or_refused_aloud(text: str) -> None:
    """Behind `--` it is sent as it is; before, it is no text: standard input, the end of options, or a mistake."""
    assert parse(["send", "b", "--", text]).text == text
    if text == "-":
        values = parse(["send", "b", text])
        assert (values.text, values.stdin) == (None, True)
    elif text == "--":
        values = parse(["send", "b", text])
        assert (values.text, values.stdin) == (None, False)  # without a text: `message_missing`
    else:
        assert "postroom send … -- TEXT" in refused("send", "b", text).hint


@pytest.mark.parametrize(
    "text", ["- first point", "-rf / is dangerous", "--summary of it", "-\ttab", "- a=b"]
)
def test_a_text_with_white_space_before_any_equals_sign_is_no_option(text: str) -> None:
    assert parse(["send", "b", text]).text == text


def test_rival_V10_a_mention_is_a_refusal_of_the_send() -> None:
    """`@b` is an ordinary word to the grammar; the contract says what is wrong with it."""
    values = parse(["send", "@b", "x"])
    result = validate({"to": values.to, "message": values.text, "summary": "s"}, Caller(kind="main"))
    assert not isinstance(result, Draft)
    assert result.code == "at_sign_in_target"


words = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["-", "--", "--json", "--help", "--summary", "--summary=x", "--msg-id", "b", "- x", "--take"]
    ),
)


@given(st.sampled_from(list(COMMANDS)), st.lists(words, max_size=6))
def test_any_words_have_values_or_a_usage_error_with_a_way_out(verb: str, rest: list[str]) -> None:
    said = ""
    try:
        parse([verb, *rest])
    except HelpAsked:
        said = "help"
    except BadUsage as error:
        said = error.hint if error.message else ""
    else:
        said = "values"
    assert said
    assert said != "help" or rest[0] in ("--help", "-h")


plain = st.text(max_size=8).filter(lambda word: not word.startswith("-"))


@given(
    st.permutations(["--summary", "--in-reply-to", "--msg-id", "--json", "TO", "TEXT"]),
    st.lists(st.tuples(plain, st.booleans()), min_size=6, max_size=6),
    st.booleans(),
)
def test_no_word_is_lost_in_any_order(order: list[str], given_: list[tuple[str, bool]], behind: bool) -> None:
    """Every word of a command line comes back in its place, however options and words are mixed."""
    argv, expected, places = ["send"], dict[str, object](), ["to", "text"]
    for what, (word, joined) in zip(order, given_, strict=True):
        if what == "--json":
            argv.append(what)
            expected["json"] = True
        elif what.startswith("--"):
            argv += [f"{what}={word}"] if joined else [what, word]
            expected[what[2:].replace("-", "_")] = word
        else:
            argv.append(word)
            expected[places.pop(0)] = word
    if behind:  # the bare dashes may stand at the end of every line
        argv.append("--")
    values = vars(parse(argv))
    assert {key: values[key] for key in expected} == expected


@pytest.mark.rule("10.2")
@given(st.lists(words, max_size=6))
def test_the_short_way_reads_standard_input_where_the_grammar_says_so(rest: list[str]) -> None:
    """`ask` may import nothing of ours, so it has its own eyes; they see the same."""
    argv = ["send", *rest]
    try:
        values = parse(argv)
    except (BadUsage, HelpAsked):
        return
    assert ask.wants_input(argv) is values.stdin


def test_the_short_way_knows_the_options_that_take_a_word_and_the_commands_of_a_session() -> None:
    assert set(ask.SEND_VALUES) == {one.option for one in COMMANDS["send"].takes if one.option and one.value}
    answered = {verb for verb, command in COMMANDS.items() if command.answered_by != "here"}
    assert set(ask.SESSION_COMMANDS) == answered - {
        *("close", "team"),  # they do more than ask
        *("team-join", "team-leave"),  # which `team` asks
        *("move", "tool"),  # which a server that stays asks
    }
    for verb in set(COMMANDS) - {"send"}:
        assert not ask.wants_input([verb, "bob", "-"])


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    ("argv", "says", "hint"),
    [
        (["frobnicate"], "no command 'frobnicate'", "postroom --help"),
        (["sned"], "no command 'sned'", "`send`"),
        ([""], "no command ''", "postroom --help"),
        (["send"], "TO is missing", "postroom send --help"),
        (["rename"], "NAME is missing", "postroom rename --help"),
        (["trace", "--json"], "MSG_ID is missing", "postroom trace --help"),
        (["send", "b", "x", "y"], "'y' is one word too many", "quotes"),
        (["send", "b", "--", "x", "y"], "'y' is one word too many", "quotes"),
        (["status", "x"], "'x' is one word too many", "`postroom status` takes no word"),
        (["status", "--", "x"], "'x' is one word too many", "`postroom status` takes no word"),
        (["inbox", "-"], "'-' is one word too many", "`postroom inbox` takes no word"),
        (["send", "b", "--summry", "s"], "no option '--summry'", "--summary"),
        (["send", "b", "--sum", "s"], "no option '--sum'", "--summary"),
        (["status", "--take"], "no option '--take'", "postroom status --help"),
        (["inbox", "--take=yes"], "--take takes no value", "postroom inbox --help"),
        (["send", "b", "x", "--summary"], "--summary needs a value", "--summary=SUMMARY"),
        (["send", "b", "x", "--summary", "--json"], "--summary needs a value", "--summary=SUMMARY"),
        (["send", "b", "x", "--summary", "--"], "--summary needs a value", "--summary=SUMMARY"),
        (["send", "b", "x", "--summary", "--msg-id=7"], "--summary needs a value", "--summary=SUMMARY"),
        (["open", "ls"], "'ls' does not", "-- ls"),
        (["open", "--name", "x", "--"], "the command behind `--` is missing", "-- COMMAND"),
        (["open", "--name", "x", "ls", "-l"], "'ls' does not", "-- ls"),
        (["open", "/bin/ls"], "'/bin/ls' does not", "-- COMMAND"),
        (["open", "--"], "the command behind `--` is missing", "-- COMMAND"),
        (["open", "--frob"], "no option '--frob'", "-- COMMAND"),
        (["open", "--mode", "Plan"], "'Plan' is none of default, manual", "postroom open --help"),
        (["open", "--mode", "unknown"], "'unknown' is none of", "postroom open --help"),
        (["status", "--mode", ""], "'' is none of default, manual", "postroom status --help"),
        (["explain", "--mode", "planned"], "none of bypassing, prompting, none", "postroom explain --help"),
        (["task"], "ACTION is missing", "postroom task --help"),
        (["task", "make"], "'make' is none of create, update, list", "postroom task --help"),
        (["task", "crate"], "'crate' is none of", "Did you mean create?"),
        (["task", "create", "two", "words"], "'words' is one word too many", "between quotes"),
        (["task", "update", "1", "--status", "done"], "'done' is none of pending", "postroom task --help"),
        (["task", "update", "1", "--metadata", "[]"], "'[]' is no JSON object", "postroom task --help"),
        (["task", "update", "1", "--metadata", "{"], "'{' is no JSON object", "postroom task --help"),
        (["team", "joined"], "'joined' is none of join, leave", "Did you mean join?"),
        (["team-join"], "--team is missing", "Write --team=NAME"),
        (["approve"], "ID is missing", "postroom approve --help"),
        (["approve", "a", "b"], "'b' is one word too many", "One ID at a time"),
        (["rename", "a", "b"], "'b' is one word too many", "quotes"),
        (
            ["setup", "gemini-cli", "codex"],
            "'codex' is one word too many",
            "One CLIENT at a time: run `postroom setup`",
        ),
        (["unsetup", "codex", "--yes", "vscode"], "'vscode' is one word too", "run `postroom unsetup` once"),
        (["doctor", "gemini-cli"], "'gemini-cli' is one word too", "`postroom doctor` takes no word"),
        (["setup", "claude"], "'claude' is none of claude-code, codex", "Did you mean claude-code?"),
        (["setup", "Claude Code"], "'Claude Code' is none of", "Did you mean claude-code?"),
        (["unsetup", "gemini"], "'gemini' is none of", "Did you mean gemini-cli?"),
        (["setup", "qwen"], "'qwen' is none of", "Did you mean qwen-code?"),
        (["setup", "vs-code"], "'vs-code' is none of", "Did you mean vscode?"),
        (["setup", "netscape"], "'netscape' is none of", "See `postroom setup --help`."),
        (["setup", ""], "'' is none of", "See `postroom setup --help`."),
        (["open", "--mode", "bypass"], "'bypass' is none of", "Did you mean bypassPermissions?"),
        (["deny", "a", "--always"], "no option '--always'", "postroom deny"),
        (["approve", "a", "--note"], "--note needs a value", "--note=TEXT"),
        (["approve", "a", "--note", "é" * 301], "301 characters, and at most 300", "postroom approve --help"),
        (["rules", "--revoke"], "--revoke needs a value", "--revoke=ID"),
        (["release", "m"], "no command 'release'", "`approve`"),
        (["reject", "m"], "no command 'reject'", "`deny`"),
        (["open", "--kind", "x"], "'x' is none of interactive, headless, bg, external", "open --help"),
        (["list", "--kind", "x"], "'x' is none of session, agent, teammate", "list --help"),
        (["open", "--ready-fd", "x"], "'x' is no whole number", "open --help"),
    ],
)
def test_a_mistake_is_said_with_the_way_out(argv: list[str], says: str, hint: str) -> None:
    error = refused(*argv)
    assert says in error.message
    assert hint in error.hint
    assert error.message.startswith(("postroom", "There is no "))


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "x", "31536001", "1e9", "0x10", "1,5", "--json"])
def test_what_is_no_length_of_time(text: str) -> None:
    assert "--timeout" in refused("wait", f"--timeout={text}").message


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "²", "٣", "1_0", " 1", "1000000000", "9" * 5000])
def test_what_is_no_number_of_rows(text: str) -> None:
    error = refused("list", f"--limit={text}")
    assert "whole number from 1 on" in error.message
    assert len(error.message) < 200


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("007", 7), ("999999999", 999_999_999)])
def test_numbers_of_rows(text: str, value: int) -> None:
    assert parse(["list", "--limit", text]).limit == value


@given(st.text())
def test_an_error_repeats_a_word_in_one_printable_line_that_ends(word: str) -> None:
    """Whatever a caller wrote: no control, no line of its own, no page of text."""
    for argv in ([word], ["send", "b", "x", word], ["wait", f"--timeout={word}"]):
        try:
            parse(argv)
        except BadUsage as error:
            for text in (error.message, error.hint):
                assert text.isprintable()
                assert len(text) < 600


# ── modes, notes, what a send stands for ─────────────────────────────────────────────────────────


@pytest.mark.rule("03.1", "03.3", "10.8")
def test_the_modes_are_those_of_the_core() -> None:
    """The table of commands is loaded by every command, so it has its own list; the core's decides."""
    assert set(MODES) == set(inbound.MODES)
    assert len(set(MODES)) == len(MODES)
    for mode in MODES:
        assert parse(["open", "--mode", mode]).mode == mode
        assert parse(["status", f"--mode={mode}"]).mode == mode
    assert parse(["open"]).mode == "default"
    assert parse(["status"]).mode is None


@pytest.mark.rule("10.10")
def test_the_classes_that_a_supposed_sender_states() -> None:
    for stated in CLASSES:
        assert parse(["explain", "--mode", stated]).mode == stated
    assert parse(["explain"]).mode is None


@pytest.mark.rule("05.24", "03.42")
@given(st.text(max_size=NOTE_LENGTH))
def test_a_note_is_taken_whole_or_refused(text: str) -> None:
    assert NOTE_LENGTH == WORDS_LIMIT
    assert parse(["deny", "m", f"--note={text}"]).note == text
    longer = text + "x" * (NOTE_LENGTH + 1 - len(text))
    assert f"at most {NOTE_LENGTH}" in refused("approve", "m", f"--note={longer}").message


@pytest.mark.rule("10.2", "01.6")
@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("send bob hello", {"to": "bob", "message": "hello", "summary": "hello", "in_reply_to": None}),
        (
            "send bob hello --summary s --in-reply-to m --notify-when-idle",
            {
                "to": "bob",
                "message": "hello",
                "summary": "s",
                "in_reply_to": "m",
                "notify_when_idle": True,
            },
        ),
        (
            "send bob --notify-when-idle",
            {"to": "bob", "message": None, "summary": None, "in_reply_to": None, "notify_when_idle": True},
        ),
        ("send bob ' '", {"to": "bob", "message": " ", "summary": None, "in_reply_to": None}),
    ],
)
def test_the_call_that_a_send_stands_for(line: str, call: dict[str, object]) -> None:
    args = parse(shlex.split(line))
    assert call_of(args, args.text) == call


@pytest.mark.rule("01.6", "10.2")
def test_a_bare_subscription_is_a_call_without_a_warning() -> None:
    args = parse(["send", "bob", "--notify-when-idle"])
    draft = validate(call_of(args, args.text), Caller(kind="main"))
    assert isinstance(draft, Draft)
    assert (draft.text, draft.notify_when_idle, draft.warnings) == (None, True, ())


def test_nobody_waits_for_the_answer_to_nothing() -> None:
    with pytest.raises(BadUsage, match="the answer to a text, and there is none"):
        call_of(parse(["send", "bob", "--notify-when-idle", "--wait-reply", "3"]), None)
    assert call_of(parse(["send", "bob", "x", "--notify-when-idle", "--wait-reply", "3"]), "x")


# ── times, summaries ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.13")
def test_moments() -> None:
    """The table is that of `core.times`; here: nothing given, and what a mistake says."""
    assert moment(None, NOW) is None
    assert moment("2h", NOW) == NOW - 7_200_000
    with pytest.raises(BadUsage, match="'gestern' is no time"):
        moment("gestern", NOW)


@pytest.mark.rule("10.2")
@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("hello", "hello"),
        ("  first \nsecond", "first"),
        ("\n\n \t\n  third\n", "third"),
        ("x" * 500, "x" * SUMMARY_LENGTH),
        ("é" * 201 + "\nrest", "é" * SUMMARY_LENGTH),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_default_summary_is_the_first_line(text: str, summary: str) -> None:
    assert first_line(text) == summary


@pytest.mark.rule("10.2", "01.3")
@given(st.text(min_size=1))
def test_the_default_summary_of_any_text_is_one_that_a_send_takes(text: str) -> None:
    assert SUMMARY_LENGTH == MAX_SUMMARY
    summary = first_line(text)
    assert len(summary) <= MAX_SUMMARY
    assert bool(summary) is bool(text.strip())
    if text.strip():
        result = validate({"to": "bob", "message": text, "summary": summary}, Caller(kind="main"))
        assert isinstance(result, Draft) or result.code == "protocol_frame_in_text"


# ── help ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.37")
def test_the_overview_lists_what_people_type() -> None:
    text = overview()
    for verb, command in COMMANDS.items():
        assert (f"\n  {verb} " in text) is command.shown
        assert not command.shown or command.does in text
    assert "130" in text


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_help_of_a_command_names_everything_that_it_takes(verb: str) -> None:
    text = help_of(verb)
    assert text.startswith(f"usage: postroom {verb} ")
    everywhere = EVERYWHERE if COMMANDS[verb].answered_by != "here" else EVERYWHERE[:1]
    for one in (*COMMANDS[verb].takes, *everywhere):
        assert (one.form in text) is one.shown
        assert not one.shown or one.says in text
        for choice in one.choices:
            assert choice in text
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(HelpAsked) as asked:
        parse([verb, "--help"])
    assert str(asked.value) == text


def test_each_value_has_a_place_of_its_own() -> None:
    for command in COMMANDS.values():
        names = [one.dest for one in (*command.takes, *EVERYWHERE)]
        assert len(set(names)) == len(names)
        assert not {"verb", "stdin"} & set(names)
        assert all(name.isidentifier() for name in names)


def test_reading_a_word_that_is_quoted_in_an_error_never_fails() -> None:
    assert arguments.quoted("x" * 100).endswith("…'")
    assert arguments.quoted("\ud800") == "'\\ud800'"
