"""The scale of a Deployment: the same tests on the stand-in of the API server and on the real one (P10)."""

import pytest

from evenlane.engine.control.scaling.target import ScaleError


async def refusal(call):
    with pytest.raises(ScaleError) as caught:
        await call
    return str(caught.value)


async def test_change_is_read_again(cluster):
    """P10."""
    await cluster.create(3)
    target = cluster.scale()
    scale = await target.read()
    assert 3 == scale.replicas
    await target.change(5, scale.version)
    assert 5 == await cluster.replicas()
    again = await target.read()
    assert (5, True) == (again.replicas, again.version != scale.version)
    await target.change(6, again.version)
    assert 6 == await cluster.replicas()


async def test_deployment_without_replicas_has_none(cluster):
    """P10: the API leaves a 0 out."""
    await cluster.create(0)
    target = cluster.scale()
    scale = await target.read()
    assert 0 == scale.replicas
    await target.change(2, scale.version)
    assert 2 == await cluster.replicas()


async def test_change_by_somebody_else_is_not_overwritten(cluster):
    """P10: a 409."""
    await cluster.create(3)
    target = cluster.scale()
    version = (await target.read()).version
    await target.change(4, version)
    assert await refusal(target.change(9, version)) == (
        "somebody else has changed the scale of Deployment 'nodes' in namespace 'prod' in the same moment (409): the"
        " next look decides again"
    )
    assert 4 == await cluster.replicas()


async def test_deployment_that_isnt_there(cluster):
    """P10: a 404."""
    await cluster.allow("get", "patch", names=("nodse",))
    expected = (
        "there is no Deployment 'nodse' in namespace 'prod' (404): scaling_deployment and scaling_namespace name the"
        " one of the nodes"
    )
    assert expected == await refusal(cluster.scale("nodse").read())
    assert expected == await refusal(cluster.scale("nodse").change(3, "1"))


@pytest.mark.parametrize(("missing", "allowed"), [("get", "patch"), ("patch", "get")])
async def test_verb_that_the_role_lacks(missing, allowed, cluster):
    """P10: a 403."""
    await cluster.create(3)
    target = cluster.scale()
    version = (await target.read()).version
    await cluster.allow(allowed)
    assert await refusal(target.read() if missing == "get" else target.change(5, version)) == (
        f"the Kubernetes API doesn't let the nodes' service account {missing} the scale of Deployment 'nodes' in"
        " namespace 'prod' (403): it needs a Role with get and patch of deployments/scale, for the name 'nodes'"
    )
    assert 3 == await cluster.replicas()


async def test_role_for_one_deployment_reaches_no_other(cluster):
    """P10, S4: least privilege."""
    await cluster.create(3)
    await cluster.create(7, "others")
    for call in (cluster.scale("others").read(), cluster.scale("others").change(1, "1")):
        assert "of Deployment 'others' in namespace 'prod' (403)" in await refusal(call)
    assert 7 == await cluster.replicas("others")


async def test_token_is_read_for_each_request(cluster):
    """P10: Kubernetes renews the token of a pod about every hour."""
    await cluster.create(3)
    target, good = cluster.scale(), cluster.token.read_text()
    cluster.token.write_text("another-token")
    assert f"the Kubernetes API doesn't accept the token of {cluster.token} (401)" == await refusal(target.read())
    cluster.token.write_text(good)
    assert 3 == (await target.read()).replicas


async def test_name_that_leaves_the_path_reaches_nothing(cluster):
    """P10: an address that is no Deployment."""
    assert "(403)" in await refusal(cluster.scale("nodes/../..").read())
