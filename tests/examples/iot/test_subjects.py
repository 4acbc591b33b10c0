"""P7: the subjects of the device platform, and their topics in MQTT."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane import ConfigError
from examples.iot.subjects import Address, Subjects, shorten, to_topic

PROJECTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


def test_defaults_are_the_original_subjects():
    made = Subjects()
    assert [
        "handler.data.partitions.p87",
        "handler.data.partitions.p87.acme.reg.response",
        "handler.data.partitions.p87.acme.close",
        "handler.data.partitions.p87.acme.data",
    ] == [made.format(name, 87, "acme") for name in ("announce", "response", "close", "data")]
    assert "handler/data/partitions/p87/acme/data" == to_topic(made.format("data", 87, "acme"))


def test_gateways_subscribe_to_all_but_the_responses():
    tree = "handler.data.partitions.*"
    assert [tree, tree + ".*.close", tree + ".*.data"] == Subjects().inbound()
    assert tree + ".*.reg.response" == Subjects().wildcard("response")


@given(partition=st.integers(0, 65_535), project=PROJECTS)
def test_subject_that_was_formatted_is_read_back(partition, project):
    made = Subjects()
    assert Address("announce", partition, None) == made.parse(made.format("announce", partition))
    for kind in ("close", "data"):
        assert Address(kind, partition, project) == made.parse(made.format(kind, partition, project))
    assert made.parse(made.format("response", partition, project)) is None


@pytest.mark.parametrize(
    "subject",
    [
        "handler.data.partitions.px",
        "handler.data.partitions.p1.acme",
        "other",
        "",
        "handler.data.partitions.p\u0661",
        pytest.param("handler.data.partitions.p" + "9" * 5_000, id="long"),
    ],
)
def test_foreign_subject_says_nothing(subject):
    assert Subjects().parse(subject) is None


def test_subject_is_shown_on_one_line_and_shortened():
    assert "a.b" == shorten("a.b")
    assert r"a\x1b[2J\nb" == shorten("a\x1b[2J\nb")
    assert "x" * 197 + "..." == shorten("x" * 60_000)


def test_topics_of_mqtt_are_taken_as_subjects():
    made = Subjects(announce="/in/{partition}", data="/in/{project}/readings")
    assert ("in.7", "in.acme.readings") == (made.format("announce", 7), made.format("data", 7, "acme"))
    assert Address("data", None, "acme") == made.parse("in.acme.readings")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": "data"}, "the subject data (data) must contain {project} once"),
        ({"announce": "new"}, "the subject announce (new) must contain {partition} once"),
        ({"announce": "new.{partition}.{project}"}, "the subject announce (new.{partition}.{project}) can't contain"),
        ({"close": "{project}.{tenant}"}, "the subject close ({project}.{tenant}) must contain {project} once, and no"),
        ({"close": "{project}.{project}"}, "the subject close ({project}.{project}) must contain {project} once"),
        ({"close": "a..{project}"}, "the subject close ('a..{project}') isn't words between dots"),
        ({"close": "a.{project}.>"}, "the subject close ('a.{project}.>') isn't words between dots"),
        ({"close": "a.{project}", "data": "a.{project}"}, "can't be distinguished"),
        ({"close": "a.{project}.b", "data": "a.c.{project}"}, "can't be distinguished"),
    ],
)
def test_template_that_cant_work_is_one_sentence(given, sentence):
    with pytest.raises(ConfigError) as raised:
        Subjects(**given)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
