"""P7: bodies of devices and gateways, whatever they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane import ConfigError
from evenlane.engine.base import names
from examples.iot.cut_off import explain
from examples.iot.ingress import delay_s
from examples.iot.messages import Answer, id_of, project_of
from examples.iot.settings import PlatformSettings


def test_id_is_the_device_s_own():
    assert "d1-7" == id_of(b'{"id": "d1-7", "device": "d1", "celsius": 21}', "place")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"21.5",
        b"\xff",
        b"[]",
        b'{"id": "\xff"}',
        pytest.param(b'{"x": ' + b"[" * 100_000, id="deep"),
        b'{"id": 7}',
        b'{"id": ""}',
        b'{"id": "a b"}',
    ],
)
def test_without_a_valid_id_it_is_the_place_in_the_stream(body):
    assert "place" == id_of(body, "place")


@given(st.binary() | st.text().map(lambda text: f'{{"id": "{text}"}}'.encode()))
def test_id_is_always_one_that_a_put_takes(body):
    names.check_id(id_of(body, "place"))


@pytest.mark.parametrize(
    ("body", "project"),
    [
        (b'{"project": "acme"}', "acme"),
        (b"{}", ""),
        (b"acme", ""),
        (b'{"project": "\xff"}', ""),
        pytest.param(b"[" * 100_000, "", id="deep"),
    ],
)
def test_project_of_an_announcement(body, project):
    assert project == project_of(body)


def test_answer_is_a_sentence():
    assert "acme is open on partition 87, answered by n1" == Answer("acme", "open", 87, "n1").sentence()
    assert "why not" == Answer("acme", "refused", 87, reason="why not").sentence()


def test_device_that_was_cut_off_is_named_with_size_and_limit():
    line = (
        '[7] 2026/11/27 19:42:39.6 [ERR] 127.0.0.1:39965 - mid:32 - "d7" - maximum payload exceeded: 2000044 vs 1048576'
    )
    sentence = explain(line)
    assert sentence is not None
    assert sentence.startswith('device "d7" was cut off: it sent 2,000,044 bytes')
    assert "at most 1,048,576 (max_payload)" in sentence
    assert explain("[7] 2026/11/27 19:42:39.6 [INF] Server is ready") is None


def test_pauses_between_deliveries_grow_and_are_bounded():
    pauses = [delay_s(number) for number in range(1, 100)]
    assert 0.2 == pauses[0]
    assert sorted(pauses) == pauses
    assert 5.0 == pauses[-1]


def test_settings_come_from_variables():
    made = PlatformSettings.of({"IOT_MQTT": "broker:1884", "IOT_QPS": "20", "IOT_SUBJECT_DATA": "d/{project}"})
    assert (("broker", 1884), 20.0, "d.{project}") == (made.mqtt_address, made.qps, made.subjects.data)
    assert "handler.data.partitions.p{partition}" == made.subjects.announce


@pytest.mark.parametrize("qps", ["many", "-1", "nan", "inf", "0"])
def test_wrong_quota_is_one_sentence(qps):
    with pytest.raises(ConfigError, match=r"IOT_QPS .* isn't a number from 0.01 to 1,000,000"):
        PlatformSettings.of({"IOT_QPS": qps})


@pytest.mark.parametrize("address", ["broker", "broker:", ":1883", "broker:x"])
def test_wrong_address_is_one_sentence(address):
    with pytest.raises(ConfigError, match="isn't HOST:PORT"):
        _ = PlatformSettings.of({"IOT_MQTT": address}).mqtt_address
