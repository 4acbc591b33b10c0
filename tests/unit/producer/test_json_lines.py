"""JSON lines: how a text is split into lines, and a line becomes a put."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.errors import ConfigError
from evenlane.engine.producer.json_lines import parse_line
from evenlane.engine.producer.put_lines import PutTally, split_lines

OPTIONS = st.fixed_dictionaries(
    {"project": st.just("acme")},
    optional={
        "priority": st.text(),
        "key": st.text(),
        "group": st.integers(0, 20_000),
        "delay": st.floats(0, 1e6),
        "ttl": st.floats(0, 1e6),
        "id": st.text(),
        "headers": st.dictionaries(st.text(), st.text()),
    },
)


@given(OPTIONS, st.binary())
def test_line_has_the_fields_of_a_put(options, body):
    put = parse_line(json.dumps(options | {"body_base64": b64encode(body).decode()}).encode())
    assert body == put.body
    assert options == {name: getattr(put, name) for name in options}


@given(OPTIONS, st.text())
def test_text_is_put_as_utf_8(options, body):
    assert body.encode() == parse_line(json.dumps(options | {"body": body}).encode()).body


@given(st.binary())
def test_any_bytes_are_a_put_or_one_sentence(raw):
    try:
        text = repr(parse_line(raw))
    except ConfigError as error:
        text = str(error)
    assert "\n" not in text


async def pieces(text, cuts):
    start = 0
    for cut in [*sorted(cuts), len(text)]:
        yield text[start:cut]
        start = cut


async def split(text, cuts, longest):
    tally = PutTally()
    found = [line async for line in split_lines(pieces(text, cuts), tally, longest)]
    return found, [refusal["line"] for refusal in tally.document()["refused"]]


@given(st.lists(st.sampled_from([b"", b" ", b"a", b"abc", b"long line"])), st.data())
async def test_lines_are_the_same_however_the_text_arrives(lines, data):
    """Blank lines are counted and left out, and a line that is too long doesn't hide the next one."""
    text = b"\n".join(lines)
    cuts = data.draw(st.sets(st.integers(0, len(text))))
    numbered = list(enumerate(lines, start=1))
    expected = [(number, line) for number, line in numbered if line.strip() and len(line) <= 5]
    assert (expected, [number for number, line in numbered if len(line) > 5]) == await split(text, cuts, 5)


@pytest.mark.parametrize("count", [10_000, 10_003])
def test_long_list_of_refusals_says_how_many_it_leaves_out(count):
    tally = PutTally()
    for number in range(count):
        tally.add_refusal(number, ConfigError("it isn't JSON"))
    document = tally.document()
    assert ([{"line": 0, "error": "it isn't JSON", "type": "ConfigError"}], 10_000, count - 10_000) == (
        document["refused"][:1], len(document["refused"]), document.get("refused_unlisted", 0),
    )  # fmt: skip
