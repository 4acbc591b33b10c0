"""Makes `import etcd3` work under current protobuf.

etcd3 0.12 has modules that protoc generated in 2019; protobuf 4 and later refuse to run them. Their content is still
valid: the descriptors of etcd's messages, in serialized form. They are extracted from the text of those files and put
into a descriptor pool of our own (another library may have its own `rpc.proto`); the message classes made from them
replace the generated modules. Nothing else in the process changes.
"""

import ast
import importlib.util
import re
import sys
import threading
from pathlib import Path
from types import ModuleType

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_PACKAGE = "etcd3.etcdrpc"
_NAMES = ("kv", "auth", "rpc")  # each needs those before it
_SERIALIZED = re.compile(r"^ *serialized_pb=_b\(('.*')\),?$", re.MULTILINE)
_lock = threading.Lock()


def install() -> None:
    """Register the replacement modules once, from any thread. Call it before etcd3 is imported.

    Raises ImportError if etcd3 isn't installed, or isn't the version whose files are known.
    """
    with _lock:
        if f"{_PACKAGE}.rpc_pb2" in sys.modules:
            return
        folder = _find_generated()
        pool = descriptor_pool.DescriptorPool()
        made = {f"{_PACKAGE}.{name}_pb2": _placeholder(pool, folder, name) for name in _NAMES}
        made[f"{_PACKAGE}.rpc_pb2"].__dict__.update(
            kv__pb2=made[f"{_PACKAGE}.kv_pb2"], auth__pb2=made[f"{_PACKAGE}.auth_pb2"]
        )
        sys.modules.update(made)


def _find_generated() -> Path:
    spec = importlib.util.find_spec("etcd3")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("etcd3 is not installed: pip install etcd3==0.12.0")
    return Path(spec.submodule_search_locations[0]) / "etcdrpc"


def _placeholder(pool: descriptor_pool.DescriptorPool, folder: Path, name: str) -> ModuleType:
    pool.AddSerializedFile(_serialize(folder / f"{name}_pb2.py"))
    described = pool.FindFileByName(f"{name}.proto")
    module = ModuleType(f"{_PACKAGE}.{name}_pb2", f"Stand-in for etcd3's {name}_pb2 ({__name__}).")
    module.__dict__["DESCRIPTOR"] = described
    for message_name, message in described.message_types_by_name.items():
        module.__dict__[message_name] = message_factory.GetMessageClass(message)
    for enum_name, enum in described.enum_types_by_name.items():
        module.__dict__[enum_name] = enum_type_wrapper.EnumTypeWrapper(enum)
        module.__dict__.update({value.name: value.number for value in enum.values})
    return module


def _serialize(path: Path) -> bytes:
    found = _SERIALIZED.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise ImportError(f"{path} holds no serialized descriptor: etcd3 0.12.0 is needed")
    text: str = ast.literal_eval(found[1])
    return text.encode("latin1")
