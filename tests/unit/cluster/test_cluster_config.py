"""Cluster config: the first process writes it, and a process that differs is refused."""

import asyncio
import json

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
from evenlane.engine.errors import ConfigError
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable

KEY = "/evenlane/online/settings"


@pytest.fixture
def coordination():
    return MemoryCoordination()


async def refusal(coordination, config):
    with pytest.raises(ConfigError) as caught:
        await agree_cluster_config(coordination, "online", config)
    return str(caught.value)


async def test_first_process_writes_the_defaults(coordination):
    assert ClusterConfig() == await agree_cluster_config(coordination, "online", {})
    assert json.loads((await coordination.get(KEY)).value) == {
        "partitions": 128, "priorities": ["high", "mid", "low"], "group_qps": 50.0, "max_group_qps": 150.0,
        "max_queue_backlog": None, "version": 1,
    }  # fmt: skip


async def test_first_process_writes_its_own_config(coordination):
    config = {"partitions": 4, "priorities": ("a", "b"), "group_qps": 5, "max_queue_backlog": 10}
    agreed = await agree_cluster_config(coordination, "online", config)
    assert ClusterConfig(4, ("a", "b"), 5.0, 150.0, 10) == agreed
    assert agreed == await agree_cluster_config(coordination, "online", {})
    assert agreed == await agree_cluster_config(coordination, "online", config)


async def test_environment_of_an_older_release_stays_hashed(coordination):
    """P13: its messages stay where producers put them; a process that asks for another layout is refused."""
    written = b'{"partitions": 64, "priorities": ["only"], "group_qps": 50, "max_group_qps": 150, "version": 1}'
    await coordination.put(KEY, written)
    assert "hashed" == (await agree_cluster_config(coordination, "online", {})).layout
    assert 'layout is "consecutive" here but "hashed" in' in await refusal(coordination, {"layout": "consecutive"})
    assert written == (await coordination.get(KEY)).value


async def test_environment_with_consecutive_partitions_is_refused_by_an_older_release(coordination):
    """P13: by its version, since such a release would look for messages elsewhere."""
    agreed = await agree_cluster_config(coordination, "online", {"layout": "consecutive"})
    assert agreed == ClusterConfig(layout="consecutive")
    assert json.loads((await coordination.get(KEY)).value) == {
        "partitions": 128, "priorities": ["high", "mid", "low"], "group_qps": 50.0, "max_group_qps": 150.0,
        "max_queue_backlog": None, "layout": "consecutive", "version": 2,
    }  # fmt: skip
    assert agreed == await agree_cluster_config(coordination, "online", {})


async def test_processes_that_start_at_once_agree(coordination):
    """Fault 18."""
    agreed = await asyncio.gather(*(agree_cluster_config(coordination.peer(), "online", {}) for _ in range(50)))
    assert {ClusterConfig()} == set(agreed)
    assert (await coordination.get(KEY)).mod_revision == 2


async def test_environments_have_separate_configs(coordination):
    """E1."""
    await agree_cluster_config(coordination, "online", {"partitions": 4})
    assert ClusterConfig() == await agree_cluster_config(coordination, "sandbox", {})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"partitions": 64}, "partitions is 64 here but 128 in environment 'online'"),
        ({"priorities": ["high", "low"]}, "priorities is high,low here but high,mid,low in"),
        ({"group_qps": 10}, "group_qps is 10.0 here but 50.0 in"),
        ({"layout": "consecutive"}, 'layout is "consecutive" here but "hashed" in'),
        ({"max_queue_backlog": 5}, "max_queue_backlog is 5 here but null in"),
    ],
)
async def test_error_names_the_setting_that_differs(coordination, config, sentence):
    await agree_cluster_config(coordination, "online", {})
    error = await refusal(coordination, config)
    assert sentence in error
    assert KEY in error


@pytest.mark.parametrize(
    "config",
    [
        {"partitions": 0}, {"partitions": 65_537}, {"partitions": True}, {"partitions": None},
        {"priorities": []}, {"priorities": list("abcdefghi")}, {"priorities": ["a", "a"]},
        {"priorities": ["a.b"]}, {"priorities": "high"}, {"priorities": [1]},
        {"group_qps": 0}, {"group_qps": float("nan")}, {"group_qps": 151}, {"max_group_qps": 49},
        {"max_queue_backlog": 0}, {"layout": "random"}, {"colour": "blue"}, {"version": 2},
    ],
    ids=str,
)  # fmt: skip
async def test_invalid_value_is_refused_and_not_written(coordination, config):
    assert next(iter(config)) in await refusal(coordination, config)
    assert await coordination.get(KEY) is None


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"version": 1, "version": 1}', b'{"version": 1, "partitions": NaN}',
     b'{"version": "1"}', b'{"version": 1, "colour": 1}', b'{"version": 1, "group_qps": 500}'],
)  # fmt: skip
async def test_corrupted_config_is_named(coordination, raw):
    await coordination.put(KEY, raw)
    assert f"the settings in etcd ({KEY}) are corrupted: " in await refusal(coordination, {})


async def test_unknown_format_version_is_named(coordination):
    await coordination.put(KEY, b'{"version": 3, "whatever": 1}')
    assert "have format version 3, and this release knows 1 and 2" in await refusal(coordination, {})


async def test_unreachable_etcd_raises(coordination):
    coordination.cut()
    with pytest.raises(Unavailable):
        await agree_cluster_config(coordination, "online", {})
