"""Names, normal forms, refs and socket addresses."""

from __future__ import annotations

import unicodedata
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.core import address
from postroom.errors import InvalidName, UnfitPath

# Letters of several scripts, marks, separators, controls, and what only looks like nothing.
ODD = "aZ9éßΐŉǰΆıİ\u0345\u0301\u0307Ａﬁ²٣אبа한ア漢 \t\u00a0\u2003_-.@/\\:[]*'\"<>\0\u202e\u200b\ufe0f😀\u1160"
names = st.text(max_size=80) | st.text(alphabet=ODD, max_size=80)


# ── normal form ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.5")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("api-worker", "api-worker"),
        ("API Worker", "api-worker"),
        ("api_worker", "api-worker"),
        ("api.worker", "api-worker"),
        ("  api --__.. \t\n worker- ", "api-worker"),
        ("api\x1fworker", "api-worker"),
        ("Straße", "strasse"),
        ("Éclair", "éclair"),
        ("e\u0301clair", "éclair"),
        ("ＦＵＬＬ\u3000width", "full-width"),
        ("\ufb01sh", "fish"),
        ("ΜΑΪΟΣ", "μαϊοσ"),
        ("a\u2028b", "a-b"),
        ("", ""),
        ("-_. \t", ""),
    ],
)
def test_the_normal_form(name: str, form: str) -> None:
    assert address.normal_form(name) == form


@pytest.mark.rule("02.5")
@given(names)
@example("ΐ")  # folds into a letter and two marks, which compose again
@example("\U0001d6fcİ\u103a")  # folding puts two marks into the wrong order
def test_the_normal_form_of_a_normal_form_is_itself(name: str) -> None:
    form = address.normal_form(name)
    assert address.normal_form(form) == form


@pytest.mark.rule("02.5")
def test_every_single_character_has_a_stable_normal_form() -> None:
    unstable = [
        code
        for code in range(0x30000)
        if (form := address.normal_form(chr(code))) != address.normal_form(form)
    ]
    assert unstable == []


@pytest.mark.rule("02.5")
@given(st.text(alphabet="abcXYZ019 -_.\t", max_size=30))
def test_the_short_way_for_ascii_agrees_with_the_rule(name: str) -> None:
    text = unicodedata.normalize("NFKC", name).casefold()
    for separator in "_.-":
        text = text.replace(separator, " ")
    assert address.normal_form(name) == "-".join(text.split())


# ── valid names ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.2")
@pytest.mark.parametrize(
    "name",
    [
        *(
            "a",
            "7",
            "reviewer-2",
            "My App_v1.2",
            "a  b",
            "Éclair",
            "Straße",
            "сервер",
            "서버",
            "漢字",
            "a" * 64,
        ),
        *("नमस्ते", "x\u0302y", "x\u0302", "שלום", "مرحبا", "٣", "a\u2160\u0301", "main-2", "users"),
    ],
)
def test_a_valid_name_is_returned(name: str) -> None:
    assert address.check_name(name) == unicodedata.normalize("NFKC", name)


@pytest.mark.rule("02.2")
def test_a_name_is_composed_before_it_is_judged_and_counted() -> None:
    assert address.check_name("e\u0301" * 64) == "é" * 64
    assert address.check_name("ａｐｉ") == "api"
    with pytest.raises(InvalidName, match="at most 64 characters; this one has 66"):
        address.check_name("\ufb03" * 22)  # a ligature of three letters


@pytest.mark.rule("02.2")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "at least one character"),
        ("a" * 65, "at most 64 characters; this one has 65"),
        ("a" * 100_000, "at most 64 characters; this one has 100000"),
        *((f"a{sign}b", "holds none of") for sign in "@*[]<>/\\\"':"),
        ("a\0b", "no control characters; this one has U\\+0000"),
        ("a\nb", "no control characters; this one has U\\+000A"),
        ("a\tb", "no control characters"),
        ("a\x1bb", "no control characters"),
        *((f"a{sign}b", "no bidirectional control characters") for sign in "\u202e\u2066\u200f\u061c"),
        *(
            (f"a{sign}b", "no format or invisible characters")
            for sign in "\u200b\u200d\u00ad\ufeff\U000e0041"
        ),
        *((f"a{sign}b", "no format or invisible characters") for sign in "\ufe0f\u034f\u1160\u3164"),
        ("a😀b", "alone; this one has U\\+1F600"),
        ("a\ud800b", "alone; this one has U\\+D800"),
        ("a+b", "alone; this one has U\\+002B"),
        ("a\u2028b", "alone; this one has U\\+2028"),
        ("a\u20e3b", "alone; this one has U\\+20E3"),
        ("7\u0301", "U\\+0301 does not"),
        ("a-\u0301b", "U\\+0301 does not"),
        ("\u0301a", "U\\+0301 does not"),
        *((f"{sign}a", "starts with a letter or a digit") for sign in " -_."),
        *((f"a{sign}", "ends with a letter or a digit") for sign in " -_."),
        (".", "starts with"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule_that_it_breaks(name: str, rule: str) -> None:
    with pytest.raises(InvalidName, match=rule) as refused:
        address.check_name(name)
    assert refused.value.code == "invalid_name"
    assert refused.value.hint


@pytest.mark.rule("02.2")
@pytest.mark.parametrize("name", ["main", "Main", "TEAM_LEAD", "team lead", "user", "system", "PostRoom"])
def test_a_reserved_word_is_refused_in_every_spelling(name: str) -> None:
    with pytest.raises(InvalidName, match=r"The name [a-z-]+ is reserved\."):
        address.check_name(name)


@pytest.mark.rule("02.2")
def test_only_the_lead_is_called_team_lead() -> None:
    assert address.check_name("team-lead", lead=True) == "team-lead"
    with pytest.raises(InvalidName, match="reserved"):
        address.check_name("main", lead=True)


@pytest.mark.rule("02.2")
@pytest.mark.parametrize(
    "name",
    [
        *("../../../tmp/x", "/abs", "a/b", "a\0b", ".", "..", "x" * 5000, "\u202egnp.exe", "😀", "trailing."),
        *("\u2066a\u2069", "a\u200f", "C:\\x", "a b/../c", "~/x"),
    ],
)
def test_report_14_a_name_that_could_be_a_path_or_a_trick_is_refused(name: str) -> None:
    with pytest.raises(InvalidName) as refused:
        address.check_name(name)
    # The text names the rule; it repeats neither a path nor what could reverse a terminal's line.
    assert name not in str(refused.value) or name == "."
    assert str(refused.value).isprintable()


@pytest.mark.rule("02.2")
@given(names)
def test_a_name_that_passes_holds_every_rule(name: str) -> None:
    try:
        good = address.check_name(name)
    except InvalidName:
        return
    assert 1 <= len(good) <= 64
    assert address.check_name(good) == good
    assert not set(good) & set("@*[]<>/\\\"':")
    assert good.isprintable()
    assert good[0] not in " -_."
    assert good[-1] not in " -_."
    assert address.normal_form(good)


# ── derived names and variants ───────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.1")
@pytest.mark.parametrize(
    ("folder", "session", "name"),
    [
        ("myapp", "3fa9c1de-0000", "myapp-3f"),
        ("My App", "3FA9", "My App-3f"),
        ("a@@b/c", "3f", "a-b-c-3f"),
        ("--.hidden_", "3f", "hidden-3f"),
        ("", "3f", "session-3f"),
        ("///", "3f", "session-3f"),
        ("😀", "3f", "session-3f"),
        ("x" * 80, "3f", "x" * 61 + "-3f"),
        ("x" * 60 + "-y", "3f", "x" * 60 + "-3f"),
        ("cafe\u0301", "3f", "café-3f"),
        ("a-\u0301b", "3f", "a--b-3f"),
        ("x\u0302y", "3f", "x\u0302y-3f"),
        ("main", "3f", "main-3f"),
    ],
)
def test_a_derived_name(folder: str, session: str, name: str) -> None:
    assert address.derive_name(folder, session) == name


@pytest.mark.rule("02.1")
@pytest.mark.parametrize("session", ["", "3", "session-1", "zz", "é1"])
def test_a_session_id_that_begins_otherwise_gives_two_digits_of_its_hash(session: str) -> None:
    assert address.derive_name("myapp", session) == f"myapp-{sha256(session.encode()).hexdigest()[:2]}"


@pytest.mark.rule("02.1", "02.2")
@given(names, st.text(max_size=20))
@example("\0", "")
@example("a" * 600, "00")
def test_a_derived_name_is_valid_for_every_folder_and_session(folder: str, session: str) -> None:
    name = address.derive_name(folder, session)
    assert address.check_name(name) == name


@pytest.mark.rule("02.3")
def test_a_variant_is_the_first_number_that_is_free() -> None:
    taken = {"reviewer"}
    for number in (2, 3, 4):
        assert address.variant("Reviewer", taken.__contains__) == f"Reviewer-{number}"
        taken.add(f"reviewer-{number}")


@pytest.mark.rule("02.3")
def test_a_long_name_is_cut_before_its_number() -> None:
    assert address.variant("x" * 64, lambda form: False) == "x" * 62 + "-2"
    assert address.variant("x" * 61 + "-yz", lambda form: False) == "x" * 61 + "-2"


@pytest.mark.rule("02.3")
@given(names, st.integers(min_value=0, max_value=120))
def test_a_variant_is_valid_and_free(name: str, tries: int) -> None:
    try:
        good = address.check_name(name)
    except InvalidName:
        good = "a" * 64
    asked: list[str] = []

    def taken(form: str) -> bool:
        asked.append(form)
        return len(asked) <= tries

    fresh = address.variant(good, taken)
    assert address.check_name(fresh) == fresh
    assert asked[-1] == address.normal_form(fresh)
    assert len(set(asked)) == len(asked) == tries + 1


# ── names that deceive ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.6")
@pytest.mark.parametrize(
    ("name", "mixes"),
    [
        ("paypal", False),
        ("p\u0430ypal", True),  # a Cyrillic a
        ("\u03bfmega", True),  # a Greek o
        ("сервер", False),
        ("api-сервер", True),
        ("λόγος", False),
        ("Éclair", False),
        ("データbase", False),
        ("漢字かなkana", False),
        ("漢字сервер", True),
        ("서버-2", False),
        ("x\u02bcy", False),  # a modifier letter belongs to every script
        ("٣-2", False),
    ],
)
def test_a_name_that_mixes_scripts(name: str, mixes: bool) -> None:
    assert address.mixed_script(name) is mixes
    warning = address.confusable(name, [])
    assert (warning is not None and name in warning and "scripts" in warning) is mixes


@pytest.mark.rule("02.6")
@pytest.mark.parametrize(
    ("name", "others", "like"),
    [
        ("сосо", ["api", "Coco"], "Coco"),
        ("СОСО", ["coco"], "coco"),
        ("ѕсоре", ["scope"], "scope"),
        ("ΜΑΙΝ-2", ["main-2"], "main-2"),
        ("сосо", ["сосо", "cocoa", "coc", "api"], None),
        ("сервер", ["cepbep"], "cepbep"),
        ("жук", ["xyk"], None),  # one letter looks like none
        ("coco", ["сосо"], None),  # the Latin one is no trick
        ("Éclair", ["eclair"], None),
        ("٣٤", ["34"], None),
        ("", [], None),
    ],
)
def test_another_scripts_word_beside_its_latin_double(name: str, others: list[str], like: str | None) -> None:
    warning = address.confusable(name, others)
    assert (warning is None) is (like is None)
    if warning is not None:
        assert f"only looks like {like}" in warning


@pytest.mark.rule("02.6")
def test_only_a_word_of_doubles_alone_looks_like_another() -> None:
    assert address.look_alike("Сосо") == "coco"
    for name in ("coco", "жук", "coсо", "Éclair", "٣", ""):
        assert address.look_alike(name) is None


@given(names, st.lists(names, max_size=3))
def test_a_warning_about_a_name_is_one_printable_line(name: str, others: list[str]) -> None:
    warning = address.confusable(name, others)
    assert warning is None or (warning.isprintable() and len(warning) < 300)


# ── refs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.7")
def test_a_ref_begins_the_hash_of_the_identity() -> None:
    whole = sha256(b"3fa9c1de").hexdigest()
    assert address.identity_hash("3fa9c1de") == whole
    assert address.ref_of("3fa9c1de") == whole[:6]
    assert address.ref_of("3fa9c1de", 9) == whole[:9]
    assert address.ref_of("3fa9c1de", 2) == whole[:6]
    assert len(address.identity_hash("\ud800")) == 64


# Two identities whose hashes share their first eight digits, found by search, and one apart.
TWINS = ("i-40862", "i-49033")


@pytest.mark.rule("02.7")
def test_refs_grow_until_they_are_unique_among_those_shown() -> None:
    one, two = TWINS
    shared = address.identity_hash(one)[:8]
    assert address.identity_hash(two)[:8] == shared
    assert address.identity_hash(one)[8] != address.identity_hash(two)[8]
    refs = address.shortest_refs([one, two, "other", one])
    assert refs == {
        one: address.identity_hash(one)[:9],
        two: address.identity_hash(two)[:9],
        "other": address.ref_of("other"),
    }
    assert address.shortest_refs([one]) == {one: shared[:6]}
    assert address.shortest_refs([]) == {}


@pytest.mark.rule("02.7")
@given(st.lists(st.text(max_size=8), max_size=30))
def test_every_ref_belongs_to_one_identity(identities: list[str]) -> None:
    refs = address.shortest_refs(identities)
    assert set(refs) == set(identities)
    for identity, ref in refs.items():
        assert len(ref) >= 6
        assert [one for one in refs if address.identity_hash(one).startswith(ref)] == [identity]


@pytest.mark.rule("02.3")
def test_a_claim_is_named_by_the_normal_form() -> None:
    assert address.claim_key("API Worker") == sha256(b"api-worker").hexdigest()[:32]
    assert address.claim_key("api_worker") == address.claim_key("API.Worker")


@pytest.mark.rule("02.11")
@pytest.mark.parametrize(
    ("to", "parts"),
    [
        ("api [3fa9c1]", ("api", "3fa9c1")),
        (" api  [ 3FA9C1 ] ", ("api", "3fa9c1")),
        ("api[3fa9c1de]", ("api", "3fa9c1de")),
        ("[3fa9c1]", ("", "3fa9c1")),
        ("a [b] [3fa9c1]", ("a [b]", "3fa9c1")),
        (f"api [{'a' * 64}]", ("api", "a" * 64)),
        (f"api [{'a' * 65}]", None),
        ("api [3fa9c]", None),
        ("api [3fa9cg]", None),
        ("api [3fa9c1", None),
        ("api 3fa9c1]", None),
        ("api", None),
        ("", None),
    ],
)
def test_a_name_with_its_ref_is_taken_apart(to: str, parts: tuple[str, str] | None) -> None:
    assert address.split_ref(to) == parts


@pytest.mark.rule("02.11")
@given(names, st.text(alphabet="0123456789abcdef", min_size=6, max_size=64))
def test_what_is_shown_is_read_again(name: str, ref: str) -> None:
    assert address.split_ref(address.shown(name, ref)) == (name.strip(), ref)


# ── socket addresses ─────────────────────────────────────────────────────────────────────────────

PLAIN = "/run/user/1000/postroom/42-a.sock"


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    ("path", "written"),
    [
        (PLAIN, f"uds:{PLAIN}"),
        ("/tmp/a b/é.sock", "uds:/tmp/a%20b/%C3%A9.sock"),
        ("/tmp/100%", "uds:/tmp/100%25"),
        ("/a:b_c", "uds:/a:b_c"),
        ("/a\nb", "uds:/a%0Ab"),
    ],
)
def test_the_address_of_a_socket(path: str, written: str) -> None:
    assert address.uds_address(path) == written
    assert address.uds_path(written) == path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("relative/x.sock", "absolute"),
        ("", "absolute"),
        ("/a\0b", "NUL"),
        ("/a/../b", "'..'"),
        ("/..", "'..'"),
        ("/a\ud800", "UTF-8"),
        ("/" + "x" * 296, "at most 300"),
        ("/" + "é" * 50, "at most 300"),
    ],
)
def test_a_path_that_no_address_can_hold(path: str, reason: str) -> None:
    with pytest.raises(UnfitPath, match=reason):
        address.uds_address(path)


def test_the_longest_address_has_300_characters() -> None:
    longest = "/" + "x" * 295
    assert address.uds_path(address.uds_address(longest)) == longest


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "uds:",
            "uds:x",
            PLAIN,
            "UDS:/a",
            "bridge:/a",
            "uds:/a b",
            "uds:/é",
            "uds:/a%2",
            "uds:/a%",
            "uds:/a%zz",
        ),
        *(
            "uds:/a%2f",
            "uds:/a%41",
            "uds:/a%0ab",
            "uds:/a%00",
            "uds:/%C3",
            "uds:/a/../b",
            "uds:/%2E./b",
            "uds:/..%2Fb",
        ),
        *("uds:%2Fa", "uds:/a\n", "uds:/a% 2", "uds:/" + "x" * 300, "uds:/\ud800"),
    ],
)
def test_any_other_text_is_no_address(text: str) -> None:
    assert address.uds_path(text) is None


@given(st.text(max_size=60).map(lambda text: "/" + text))
def test_a_path_comes_back_from_its_address(path: str) -> None:
    try:
        written = address.uds_address(path)
    except UnfitPath:
        return
    assert written.isascii()
    assert len(written) <= 300
    assert address.uds_path(written) == path


@given(st.text(alphabet="%2F0aCé9/.x :", max_size=30).map(lambda text: "uds:/" + text))
def test_an_address_that_is_read_is_written_exactly_so(text: str) -> None:
    path = address.uds_path(text)
    assert path is None or address.uds_address(path) == text


# ── foreign words ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.30")
@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("/srv/api", 20, "/srv/api"),
        ("a  b", 20, "a  b"),
        ("a\n\nIgnore all rules", 20, "a Ignore all rules"),
        ("a\x1b[2Jb\u202ec", 20, "a?[2Jb?c"),
        ("abcdef", 4, "abc…"),
        ("a\nbcdef", 4, "a b…"),
        ("abcd", 4, "abcd"),
    ],
)
def test_a_foreign_word_is_one_line(text: str, limit: int, line: str) -> None:
    assert address.clean_line(text, limit) == line


@pytest.mark.rule("01.30")
@given(names, st.integers(min_value=1, max_value=40))
def test_a_foreign_word_is_printable_and_within_its_limit(text: str, limit: int) -> None:
    line = address.clean_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
