"""The size of a cluster for a load, against statements that any right size fulfils; and costs against their pages."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.plan import costs
from evenlane.engine.admin.plan.size import Load, size
from evenlane.engine.errors import ConfigError
from tests.support import ROOT

BUSY = 0.7

loads = st.builds(
    Load,
    qps=st.floats(0.001, 50_000),
    handler_s=st.floats(0.001, 2),
    handler_cpu_s=st.floats(0, 0.001),
    concurrency=st.integers(8, 4_000),
    message_bytes=st.integers(0, 100_000),
    retention_s=st.floats(0, 1e6),
    replicas=st.integers(1, 5),
    growth=st.just(1.0),
    build=st.sampled_from(["pure", "compiled"]),
)


def sized(load):
    try:
        return {each.name: each.value for each in size(load)}
    except ConfigError:
        return None


def carries(load, nodes):
    """Whether this number of nodes has the slots and the cores for the load, at 70 % of both."""
    cpu_s = load.handler_cpu_s + costs.NODE_CPU_US[load.build] * 1e-6
    tolerance = 1 + 1e-6
    slots = nodes * load.concurrency * BUSY * tolerance >= load.qps * load.handler_s
    return slots and nodes * BUSY * tolerance >= load.qps * cpu_s


@given(loads)
def test_cluster_survives_the_loss_of_a_node_and_has_no_node_too_many(load):
    """All but one node do the work; with one fewer, they couldn't."""
    found = sized(load)
    if found is None:
        return
    nodes = found["nodes"]
    assert nodes >= 2
    assert carries(load, nodes - 1)
    assert nodes == 2 or not carries(load, (nodes - 2) * (1 - 1e-6) - 1 / load.concurrency)


@given(loads, st.floats(1, 50))
def test_partitions_are_ten_for_each_node_that_will_ever_be(load, growth):
    """The number is fixed, and far above two per node."""
    found = sized(Load(load.qps, load.handler_s, concurrency=load.concurrency, growth=growth))
    if found is None:
        return
    partitions = found["partitions"]
    assert partitions >= max(128, 10 * growth * found["nodes"])
    assert math.log2(partitions).is_integer()
    assert partitions == 128 or partitions / 2 < 10 * math.ceil(growth * found["nodes"])


@given(loads, st.floats(1.1, 10))
def test_more_load_never_needs_less(load, factor):
    grown = Load(load.qps * factor, load.handler_s, load.handler_cpu_s, load.concurrency, load.message_bytes,
                 load.retention_s, load.replicas, load.growth, load.build)  # fmt: skip
    less, more = sized(load), sized(grown)
    if less is None or more is None:
        return
    assert all(less[name] <= more[name] for name in less)


def test_figures_of_one_load_by_hand():
    """1,000 messages per second of 100 ms, 1,000 bytes each."""
    found = sized(Load(1_000, 0.1))
    assert 143 == found["slots"]  # 100 / 0.7
    assert (3, 1, 4) == (found["nodes for slots"], found["nodes for cores"], found["nodes"])
    assert 256 == found["partitions"]  # 4 x 4 x 10
    assert 92e6 + 96 * 2**20 == found["memory of a node"]
    assert 1_000 * 3_600 * 1_154 + 4 * 50_000 * 60_480 == found["disk of a NATS server"]
    assert 2_000 == found["synced writes"]
    assert 4 * 1_154_000 == found["network of a NATS server"]
    assert pytest.approx(2.4) == found["etcd requests"]


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        ({"qps": math.nan}, "--qps must be from 0.001 to 10,000,000, not nan"),
        ({"qps": 0}, "--qps must be"),
        ({"handler_s": -1}, "--handler-ms must be"),
        ({"handler_cpu_s": 0.2}, r"--handler-cpu-ms \(200\) is above --handler-ms \(100\)"),
        ({"concurrency": 0}, "--concurrency must be"),
        ({"message_bytes": -1}, "--message-bytes must be"),
        ({"replicas": 6}, "--replicas must be from 1 to 5, not 6"),
        ({"growth": 0.5}, "--growth must be"),
        ({"build": "fast"}, "--build must be one of pure, compiled, not 'fast'"),
    ],
)
def test_wrong_load_is_refused(load, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Load(**{"qps": 1_000, "handler_s": 0.1, **load})


def test_load_beyond_any_environment_is_refused():
    with pytest.raises(ConfigError, match="has at most 65,536: spread the projects over several environments"):
        size(Load(1e6, 0.1))


@pytest.mark.source
def test_costs_are_those_of_the_pages():
    """Each constant is a figure that a benchmark has printed."""
    page = (ROOT / "docs/explanation/benchmarks.md").read_text()
    endurance = re.search(r"and (\d+) MB after both 5 and 10 million", page.replace("\n", " "))
    node = re.search(r"\| node us of CPU a message \| [^|]+ \| ([\d.]+) us \| ([\d.]+) us \|", page)
    put = re.search(r"\| `always` \| ([\d,]+) \| ([\d.]+) us \| (\d+) bytes \|", page)
    delivery = re.search(r"\| 2 processes \| [\d,]+ \| [\d.]+ \| ([\d.]+) \|", page)
    assert {"pure": float(node[1]), "compiled": float(node[2])} == costs.NODE_CPU_US
    assert (int(put[1].replace(",", "")), float(put[2])) == (costs.PUTS_PER_S, costs.SERVER_WRITE_US)
    assert int(put[3]) == costs.STORED_BYTES
    assert float(delivery[1]) == costs.SERVER_DELIVERY_US
    assert int(endurance[1]) * 1_000_000 == costs.PROCESS_BYTES
    metering = (ROOT / "docs/reference/metering.md").read_text()
    assert int(re.search(r"is 20 to (\d+) KB in size", metering)[1]) * 1_000 == costs.METER_BYTES
