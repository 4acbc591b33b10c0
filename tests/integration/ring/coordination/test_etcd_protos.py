"""etcd3 can be imported with the present protobuf, without effects on the rest of the process."""

import subprocess
import sys

import pytest

from evenlane.ring.coordination.etcd import protos as etcd_protos
from evenlane.ring.coordination.etcd.channel import etcd3


def _run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_messages_have_etcds_wire_format():
    rpc = etcd3.etcdrpc
    generated = sys.modules["etcd3.etcdrpc.rpc_pb2"]
    request = rpc.RangeRequest(key=b"a", sort_order=rpc.RangeRequest.DESCEND)
    assert request == rpc.RangeRequest.FromString(b"\x0a\x01a\x28\x02")
    assert (0, 1, 2) == (rpc.NONE, rpc.NOSPACE, rpc.CORRUPT)
    assert rpc.AlarmType.Name(1) == "NOSPACE"
    assert generated.kv__pb2.Event.DELETE == 1
    assert generated.auth__pb2.Permission.READWRITE == 2


def test_install_is_thread_safe():
    program = (
        "import sys, threading\n"
        "from evenlane.ring.coordination.etcd.protos import install\n"
        "threads = [threading.Thread(target=install) for _ in range(16)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "before = sys.modules['etcd3.etcdrpc.rpc_pb2']\n"
        "install()\n"
        "import etcd3\n"
        "print(before is sys.modules['etcd3.etcdrpc.rpc_pb2'])\n"
        "print(etcd3.etcdrpc.PutRequest is before.PutRequest)\n"
    )
    assert _run(program) == "True\nTrue\n"


def test_other_rpc_proto_of_process_is_unaffected():
    program = (
        "import os\n"
        "before = dict(os.environ)\n"
        "import evenlane.ring.coordination.etcd.client\n"
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "other = descriptor_pb2.FileDescriptorProto(name='rpc.proto', package='etcdserverpb')\n"
        "other.message_type.add(name='PutRequest')\n"
        "descriptor_pool.Default().Add(other)\n"
        "print(before == dict(os.environ))\n"
    )
    assert _run(program) == "True\n"


def test_unexpected_file_is_named(tmp_path):
    path = tmp_path / "kv_pb2.py"
    path.write_text("DESCRIPTOR = None\n")
    with pytest.raises(ImportError, match="holds no serialized descriptor"):
        etcd_protos._serialize(path)
