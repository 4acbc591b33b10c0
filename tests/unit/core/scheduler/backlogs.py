"""Tenants with a backlog that never ends."""

PLENTY = 10**6


def backlogged(world, project, groups=1, band="mid", **rules):
    world.topic(project, groups=groups, **{"qps": 150.0 * groups, **rules})
    for group in range(groups):
        world.put(f"{project}/{group}/{band}", PLENTY)
