"""A disk whose power a test can cut: a file system on a loop device, which loses what hasn't been synced to it."""

import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

# FS_IOC_SHUTDOWN with NOLOGFLUSH: the file system stops at once, without writing its journal.
_SHUTDOWN, _WITHOUT_FLUSH = 0x8004587D, 2
_SIZE = 1 << 30  # bytes; the file is sparse


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


class PowerDisk:
    """An ext4 file system, mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self._image, self.path = folder.with_suffix(".disk"), folder

    def make(self) -> None:
        """Raises OSError or CalledProcessError where this user may not mount it."""
        with self._image.open("wb") as file:
            file.truncate(_SIZE)
        _run("mkfs.ext4", "-q", self._image)
        self.path.mkdir()
        self._mount()

    def cut(self) -> None:
        """Cut the power. Processes that use the disk then get errors: kill them, and call `restore`."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Turn the power on again: the disk has what was synced."""
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        _run("umount", self.path)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", self._image, self.path)


@contextmanager
def power_disks(*folders: Path):
    """A disk at each folder. Skips the test where this user may not mount them."""
    if os.geteuid() or not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("a power cut needs root, mkfs.ext4 and loop devices")
    disks = [PowerDisk(folder) for folder in folders]
    mounted = []
    try:
        for disk in disks:
            try:
                disk.make()
            except subprocess.CalledProcessError as error:
                pytest.skip(f"this machine can't mount a loop device: {error.stderr.decode(errors='replace').strip()}")
            mounted.append(disk)
        yield disks
    finally:
        for disk in mounted:
            disk.unmount()
