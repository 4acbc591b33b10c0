"""The processor time that a process may use, by the texts of the kernel (P2)."""

import os

import pytest

from evenlane.engine.base.cpu_limit import (
    Groups,
    find_limits,
    parse_cpu_max,
    parse_groups,
    parse_quota,
    read_cpu_limit,
)

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5f.slice/cri-containerd-9a.scope"

# /proc/self/cgroup: of a container with its own namespace, of a systemd service, of versions 1, and of both
OWN_NAMESPACE = "0::/\n"
SERVICE = "0::/system.slice/evenlane.service\n"
VERSION_1 = f"""\
12:cpuset:/{POD}
7:memory:/{POD}
4:cpu,cpuacct:/{POD}
1:name=systemd:/{POD}
"""
BOTH = "2:cpu:/docker/77\n1:name=systemd:/docker/77\n0::/docker/77\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OWN_NAMESPACE, Groups("/", None)),
        (SERVICE, Groups("/system.slice/evenlane.service", None)),
        (VERSION_1, Groups(None, f"/{POD}")),
        (BOTH, Groups("/docker/77", "/docker/77")),
        ("0::/a:b\n", Groups("/a:b", None)),
        ("", Groups(None, None)),
        ("nonsense\n::\n4:cpuset:/x\n", Groups(None, None)),
    ],
)
def test_groups_of_a_process(text, expected):
    """P2."""
    assert expected == parse_groups(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("150000 100000\n", 1.5),
        ("50000 100000\n", 0.5),
        ("200000 50000", 4.0),
        ("max 100000\n", None),
        ("max\n", None),
        ("", None),
        ("0 100000", None),
        ("100000 0", None),
        ("-1 100000", None),
        ("1e5 100000", None),
    ],
)
def test_cpu_max_of_version_2(text, expected):
    """P2."""
    assert expected == parse_cpu_max(text)


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [
        ("250000\n", "100000\n", 2.5),
        ("-1\n", "100000\n", None),
        ("", "100000", None),
        ("100000", "", None),
    ],
)
def test_quota_and_period_of_version_1(quota, period, expected):
    """P2."""
    assert expected == parse_quota(quota, period)


def limits(groups, files):
    return sorted(find_limits(parse_groups(groups), files.get))


def test_container_with_a_namespace_of_its_own_has_its_limit_at_the_root():
    """P2: as containerd and Docker set containers up under version 2."""
    assert [0.5] == limits(OWN_NAMESPACE, {"cpu.max": "50000 100000\n"})


def test_limits_of_the_groups_above_count():
    """P2: a service without a limit, in a slice with one."""
    files = {"system.slice/evenlane.service/cpu.max": "max 100000\n", "system.slice/cpu.max": "300000 100000\n"}
    assert [3.0] == limits(SERVICE, files)


def test_version_1_is_found_under_both_names_of_its_mount():
    """P2."""
    for mount in ("cpu", "cpu,cpuacct"):
        folder = f"{mount}/{POD}"
        files = {f"{folder}/cpu.cfs_quota_us": "120000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
        assert [1.2] == limits(VERSION_1, files)


def test_path_of_the_host_that_the_container_cant_see():
    """P2: without a namespace the path is the host's, and the mount is the container's own."""
    assert [2.0] == limits(VERSION_1, {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"})
    assert [2.0] == limits("0::/../../pod/9a\n", {"cpu.max": "200000 100000"})


def test_version_2_next_to_version_1():
    """P2."""
    files = {
        "cpu/docker/77/cpu.cfs_quota_us": "100000", "cpu/docker/77/cpu.cfs_period_us": "100000",
        "unified/docker/77/cpu.max": "max 100000",
    }  # fmt: skip
    assert [1.0] == limits(BOTH, files)


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_lowest_limit_counts_and_the_cores_of_the_process_bound_it(tmp_path):
    """P2: read from files, as from the kernel's."""
    cores = len(os.sched_getaffinity(0))
    write(tmp_path, {"own": SERVICE, "system.slice/evenlane.service/cpu.max": "50000 100000"})
    assert 0.5 == read_cpu_limit(tmp_path, tmp_path / "own")
    write(tmp_path, {"system.slice/cpu.max": "25000 100000"})
    assert 0.25 == read_cpu_limit(tmp_path, tmp_path / "own")
    write(tmp_path, {"system.slice/evenlane.service/cpu.max": "max 1", "system.slice/cpu.max": "9900000 1000"})
    assert cores == read_cpu_limit(tmp_path, tmp_path / "own")


def test_machine_without_control_groups_gives_the_cores(tmp_path):
    """P2."""
    assert len(os.sched_getaffinity(0)) == read_cpu_limit(tmp_path, tmp_path / "own")


def test_limit_of_this_machine_is_above_zero():
    """P2: on the real files."""
    assert 0 < read_cpu_limit() <= os.cpu_count()
