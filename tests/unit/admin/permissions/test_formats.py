"""What `evenlane permissions` prints (S1); tests/integration/admin/permissions uses it on real servers."""

import pytest

from evenlane.engine.admin.permissions.formats import etcd_commands, nats_account, nats_config
from evenlane.engine.admin.permissions.roles import make_role
from evenlane.engine.cli.main import run
from evenlane.engine.errors import ConfigError, InvalidName

PRODUCER = """\
# The permissions of producer-acme. Its process needs the settings:
#   env = "online"
#   nats_user = "producer-acme"
#   nats_inbox = "_INBOX.producer-acme"
#   etcd_user = "producer-acme"
#   projects = ["acme"]
# In the server's users: { user: "producer-acme", password: "...", permissions: $producer-acme-permissions }
producer-acme-permissions = {
  publish: { allow: [
    "lanes.online.*.acme.*.*"
    "later.online.*.acme.*.*.*"
    "ask.online.backlog.acme"
  ] }
  subscribe: { allow: [
    "_INBOX.producer-acme.>"
    "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*"
    "$JS.EVENT.ADVISORY.STREAM.UPDATED.*"
  ] }
}
"""
IMPORTS = """\
# In the server's accounts: producer-acme: { imports: $producer-acme-imports, users: [...] }
producer-acme-imports = [
  { service: { account: EVENLANE, subject: "lanes.online.*.acme.*.*" } }
  { service: { account: EVENLANE, subject: "later.online.*.acme.*.*.*" } }
  { service: { account: EVENLANE, subject: "ask.online.backlog.acme" } }
]
"""
ETCD = """\
# Run this as etcd's root, with the user's password on stdin.
set -e
etcdctl role get producer-acme > /dev/null 2>&1 || etcdctl role add producer-acme
etcdctl role grant-permission producer-acme read /evenlane/online/settings
etcdctl role grant-permission producer-acme read /evenlane/online/accepted/acme
etcdctl user get producer-acme > /dev/null 2>&1 || etcdctl user add producer-acme --interactive=false
etcdctl user grant-role producer-acme producer-acme
"""


def test_producer_of_one_project_gets_its_subjects_and_keys_alone():
    role = make_role("producer", "online", ["acme"])
    assert PRODUCER == nats_config(role)
    assert PRODUCER + IMPORTS == nats_account(role)
    assert etcd_commands(role).endswith(ETCD)


def test_command_prints_what_the_functions_return(capsys):
    assert 0 == run(["permissions", "producer", "--project", "acme"])
    assert PRODUCER == capsys.readouterr().out
    assert 0 == run(["permissions", "producer", "--project", "acme", "--format", "etcd"])
    assert capsys.readouterr().out.endswith(ETCD)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("node", "online", ["acme"]), ConfigError, "--project: a node works for all projects"),
        (("producer", "online", ["a", "b"]), ConfigError, "--name: a producer of several projects needs a name"),
        (("producer", "online", ["a.*"]), InvalidName, r"project 'a\.\*' is not valid"),
        (("producer", "online", ["a"], "x.>"), InvalidName, "name 'x.>' is not valid"),
        (("node", "*"), InvalidName, r"environment '\*' is not valid"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments, error, text):
    with pytest.raises(error, match=text):
        make_role(*arguments)


def test_only_nodes_and_producers_of_some_projects_have_accounts():
    with pytest.raises(ConfigError, match="only nodes, and producers with --project, have accounts"):
        nats_account(make_role("operator", "online"))
    assert "exports: $node-exports" in nats_account(make_role("node", "online"))


def test_users_of_two_projects_share_no_inbox():
    """S1: `a-b` is another project than `a` and `b`; a name that could be two users' must be given."""
    roles = [make_role("producer", "online", [project]) for project in ("a-b", "a_b", "a", "b")]
    assert 4 == len({role.settings["nats_inbox"] for role in roles})
