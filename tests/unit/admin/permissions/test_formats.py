"""What `evenlane permissions` prints (S1); tests/integration/admin/permissions uses it on real servers."""

import json
import subprocess

import pytest

from evenlane.engine.admin.permissions.formats import (
    etcd_commands,
    jwt_permissions,
    nats_account,
    nats_config,
    nsc_commands,
)
from evenlane.engine.admin.permissions.roles import Additions, make_role
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


NSC = """\
# The permissions of producer-acme. Its process needs the settings:
#   env = "online"
#   nats_creds_file = "producer-acme.creds"
#   nats_inbox = "_INBOX.producer-acme"
#   etcd_user = "producer-acme"
#   projects = ["acme"]
# Run this with the account that has the streams. Then this prints the credentials:
#   nsc generate creds --name producer-acme
set -e
nsc describe user --name producer-acme > /dev/null 2>&1 || nsc add user --name producer-acme
nsc edit user --name producer-acme \\
  --allow-pub 'lanes.online.*.acme.*.*' \\
  --allow-pub 'later.online.*.acme.*.*.*' \\
  --allow-pub ask.online.backlog.acme \\
  --allow-sub '_INBOX.producer-acme.>' \\
  --allow-sub '$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*' \\
  --allow-sub '$JS.EVENT.ADVISORY.STREAM.UPDATED.*'
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


def test_user_with_a_jwt_gets_the_same_subjects():
    """S1: for `nsc`, and for tools that sign claims themselves. The settings name the file of credentials, no user."""
    role = make_role("producer", "online", ["acme"])
    assert NSC == nsc_commands(role)
    document = json.loads(jwt_permissions(role))
    assert {"pub": {"allow": [*role.publish]}, "sub": {"allow": [*role.subscribe]}} == document["permissions"]
    assert {
        "env": "online", "nats_creds_file": "producer-acme.creds", "nats_inbox": "_INBOX.producer-acme",
        "etcd_user": "producer-acme", "projects": ["acme"],
    } == document["settings"]  # fmt: skip


@pytest.mark.parametrize("exists", [True, False])
def test_commands_for_nsc_reach_it_as_they_are_meant(tmp_path, exists):
    """S1: the shell expands no `$JS` and no `*`; a user that exists isn't made again."""
    nsc = tmp_path / "nsc"
    found = "" if exists else '[ "$1" = describe ] && exit 1\n'
    nsc.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "" >> "{tmp_path / "calls"}"\n{found}exit 0\n')
    nsc.chmod(0o755)
    role = make_role("node", "online")
    subprocess.run(["sh", "-c", nsc_commands(role)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
    calls = [each.split("\n") for each in (tmp_path / "calls").read_text().split("\n\n")[:-1]]
    made = [] if exists else [["add", "user", "--name", "node"]]
    options = [part for each in role.publish for part in ("--allow-pub", each)]
    options += [part for each in role.subscribe for part in ("--allow-sub", each)]
    assert [
        ["describe", "user", "--name", "node"], *made, ["edit", "user", "--name", "node", *options]
    ] == calls  # fmt: skip


def test_mistyped_role_is_one_sentence(capsys):
    assert 2 == run(["permissions", "producr"])
    roles = "'node', 'producer', 'reporter', 'operator'"
    sentence = f"Invalid value for 'ROLE': 'producr' is not one of {roles} (see `evenlane permissions --help`)"
    assert f"evenlane: {sentence}\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("node", "online", ["acme"]), ConfigError, "--project: a node works for all projects"),
        (("producer", "online", ["a", "b"]), ConfigError, "--name: a producer of several projects needs a name"),
        (("producer", "online", ["a.*"]), InvalidName, r"project 'a\.\*' is not valid"),
        (("producer", "online", ["a"], "x.>"), InvalidName, "name 'x.>' is not valid"),
        (("node", "*"), InvalidName, r"environment '\*' is not valid"),
        (
            ("node", "online", [], None, Additions(topics=True)),
            ConfigError,
            "--topics: only a producer of all projects",
        ),
        (("producer", "x", ["a"], None, Additions(topics=True)), ConfigError, "--topics: only a producer of all"),
        (
            ("reporter", "online", [], None, Additions(subscriptions=("audit",))),
            ConfigError,
            "^--subscription: an operator creates and deletes subscriptions, and a node works for one$",
        ),
        (
            ("node", "online", [], None, Additions(subscriptions=("audit", "mail"))),
            ConfigError,
            "^--subscription: a node works for one subscription$",
        ),
        (
            ("operator", "x", [], None, Additions(subscriptions=("a_b",))),
            InvalidName,
            "subscription 'a_b' is not valid",
        ),
        *(
            (("node", "online", [], None, Additions(publish=(wrong,))), ConfigError, "is not a subject of NATS: write")
            for wrong in ("", "a b", "a..b", ".a", "a.", "a.>.b", "a.b*", '"a\nb', "a,b", "a.\x00", "a\x1b")
        ),
        (
            ("node", "online", [], None, Additions(publish=("a",), answers=True)),
            ConfigError,
            "^--answer: name the subjects of the requests by --subscribe$",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments, error, text):
    with pytest.raises(error, match=text):
        make_role(*arguments)


def test_what_a_process_does_itself_is_added_in_each_format(capsys):
    """S1: subjects of its own, answers to requests, and topics that it creates."""
    arguments = ("--publish", "orders.*.created", "--subscribe", "orders.>", "--answer", "--topics")
    assert 0 == run(["permissions", "producer", *arguments])
    text = capsys.readouterr().out
    assert text.endswith('    "orders.>"\n  ] }\n  allow_responses: { max: 1, expires: "10s" }\n}\n')
    assert '    "orders.*.created"\n  ] }\n  subscribe' in text
    assert 0 == run(["permissions", "producer", *arguments, "--format", "nsc"])
    assert capsys.readouterr().out.endswith(" --allow-sub 'orders.>' \\\n  --allow-pub-response=1 --response-ttl 10s\n")
    assert 0 == run(["permissions", "producer", *arguments, "--format", "json"])
    permissions = json.loads(capsys.readouterr().out)["permissions"]
    assert "orders.*.created" == permissions["pub"]["allow"][-1]
    assert {"max": 1, "ttl": 10_000_000_000} == permissions["resp"]
    assert 0 == run(["permissions", "producer", *arguments, "--format", "etcd"])
    grants = [line for line in capsys.readouterr().out.splitlines() if "grant-permission" in line]
    assert [
        "readwrite /evenlane/online/topics/", "readwrite /evenlane/online/authors/", "read /evenlane/online/settings",
        "read /evenlane/online/accepted/", "read /evenlane/online/templates/", "read /evenlane/online/leader",
    ] == [line.partition(" producer ")[2] for line in grants]  # fmt: skip


def test_operator_of_a_subscription_may_delete_its_streams_alone():
    """S1, K10: no stream of messages, and no other subscription's."""
    plain = make_role("operator", "online")
    role = make_role("operator", "online", additions=Additions(subscriptions=("audit", "audit")))
    own = [f"{kind}_online_audit" for kind in ("SETTLED", "AGAIN", "DEAD", "METER")]
    deletions = [f"$JS.API.STREAM.DELETE.{stream}" for stream in ("RETAIN_online", *own)]
    asks = [f"ask.online_audit.{what}" for what in ("why.*", "overview", "drop.*")]
    logs = ("settled.online.*.*", "settled.online_audit.*.*")
    assert (*logs, "again.online_audit.>", *asks, *deletions) == role.publish[len(plain.publish) :]
    keys = ("/evenlane/online/subscriptions", "/evenlane/online/subscription/audit/")
    assert keys == role.write[len(plain.write) :]
    assert (plain.read, plain.subscribe) == (role.read, role.subscribe)


def test_only_nodes_and_producers_of_some_projects_have_accounts():
    with pytest.raises(ConfigError, match="only nodes, and producers with --project, have accounts"):
        nats_account(make_role("operator", "online"))
    assert "exports: $node-exports" in nats_account(make_role("node", "online"))


def test_users_of_two_projects_share_no_inbox():
    """S1: `a-b` is another project than `a` and `b`; a name that could be two users' must be given."""
    roles = [make_role("producer", "online", [project]) for project in ("a-b", "a_b", "a", "b")]
    assert 4 == len({role.settings["nats_inbox"] for role in roles})
