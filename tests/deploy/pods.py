"""Runs the container of a rendered pod by runc, as a kubelet would: image, command, variables, volumes, user."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.support import ROOT

IMAGE = ROOT / "build/image/evenlane"
TOOLS = ("mmdebstrap", "buildah", "runc")


def find_missing():
    """Return why no image can be built and run here; empty if it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not installed"
    return "" if os.geteuid() == 0 else "containers are run by root only"


def _output(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    return ended.stdout.strip()


class Image:
    """The image of `make image`, mounted."""

    def __enter__(self):
        _output("make", "-C", ROOT, "image")
        self._container = _output("buildah", "from", f"oci:{IMAGE}")
        self.root = Path(_output("buildah", "mount", self._container))
        self.config = json.loads(_output("buildah", "inspect", self._container))["OCIv1"]["config"]
        return self

    def __exit__(self, *_):
        _output("buildah", "rm", self._container)

    def size(self):
        """Bytes of all files."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        return sum(file.lstat().st_size for file in files)


class Pod:
    """One container of a pod. It shares the network of the host, on which the servers listen."""

    def __init__(self, image, spec, container, folders, bundle):
        """`folders` has a folder for each volume that isn't an emptyDir."""
        self._bundle, self._name = bundle, f"evenlane-{os.getpid()}-{bundle.name}"
        _output("runc", "spec", "--bundle", bundle)
        config = json.loads((bundle / "config.json").read_text())
        user, allowed = spec["securityContext"], container["securityContext"]
        environ = dict(each.split("=", 1) for each in image.config["Env"])
        environ |= {each["name"]: each.get("value", self._name) for each in container["env"]}
        config["root"] = {"path": str(image.root), "readonly": allowed["readOnlyRootFilesystem"]}
        config["process"] |= {
            "terminal": False, "args": [*container["command"], *container["args"]], "cwd": image.config["WorkingDir"],
            "env": [f"{name}={value}" for name, value in environ.items()],
            "user": {"uid": user["runAsUser"], "gid": user["runAsGroup"]},
            "noNewPrivileges": not allowed["allowPrivilegeEscalation"],
        }  # fmt: skip
        assert {"drop": ["ALL"]} == allowed["capabilities"]
        config["process"]["capabilities"] = {kind: [] for kind in config["process"]["capabilities"]}
        kept = (each for each in config["linux"]["namespaces"] if each["type"] not in {"network", "cgroup"})
        config["linux"]["namespaces"] = list(kept)
        volumes = {each["name"]: each for each in spec["volumes"]}
        config["mounts"] += [_mount(each, volumes[each["name"]], folders) for each in container["volumeMounts"]]
        (bundle / "config.json").write_text(json.dumps(config))

    def start(self):
        self.log = (self._bundle / "stderr").open("wb")
        self.process = subprocess.Popen(
            ["runc", "run", "--bundle", self._bundle, self._name], stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def run(self, *command):
        """Run a command in the container, such as preStop."""
        return _output("runc", "exec", self._name, *command)

    def terminate(self):
        _output("runc", "kill", self._name, "TERM")

    def stderr(self):
        return (self._bundle / "stderr").read_text()

    def remove(self):
        subprocess.run(["runc", "delete", "--force", self._name], capture_output=True, check=False)
        self.process.wait(30)
        self.process.stdout.close()
        self.log.close()


def _mount(mount, volume, folders):
    where = {"destination": mount["mountPath"]}
    if "emptyDir" in volume:
        return where | {"type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}
    return where | {"type": "bind", "source": str(folders[mount["name"]]), "options": ["rbind", "ro"]}
