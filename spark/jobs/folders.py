"""Folders that Spark writes to, local or not (`s3a://...`, `hdfs://...`): rename, delete, list, through
Hadoop's clients.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import EvenlaneError
from evenlane.spark.failures import explained
from evenlane.spark.out import place
from evenlane.spark.reports.grains import Grains
from evenlane.spark.source.archive import ENVIRONMENT, check_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


class Folder:
    """A folder. `path` is a path or URL in Spark's format; names are relative to it, with `/` between parts. Raises
    Failed for an unknown kind of URL, ConfigError for a name that Spark would take for a pattern.

    A rename is atomic if the file system's is: on local ones and HDFS, not on object stores.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        hadoop = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._path_of = jvm.org.apache.hadoop.fs.Path
        self._spark, self._jvm, self._hadoop = spark, jvm, hadoop
        with explained():
            self._files = self._path_of(path).getFileSystem(hadoop)
        self.path = self._files.makeQualified(self._path_of(path)).toString().rstrip("/")
        place.check_name(self.path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold a lock on the folder. Raises Busy while another process on this machine holds it. Folders that aren't
        local can't be locked.
        """
        if not self.path.startswith("file:"):
            yield
            return
        folder = Path(self.path.removeprefix("file:"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvenlaneError(f"{folder} can't be a folder to write to: {error.strerror}") from error
        with place.lock(folder, f"another process is writing to {folder}: only one can at a time"):
            yield

    def refuse_other(self, cluster: str) -> None:
        """Raise ConfigError if the folder belongs to another environment or subscription."""
        whose = self.read(ENVIRONMENT)
        if whose is not None:
            check_cluster(self.path.removeprefix("file:"), whose, cluster)

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self, pattern: str) -> list[str]:
        """Return the existing names that match a shell pattern, sorted."""
        found = self._files.globStatus(self._path_of(self.path_of(pattern))) or ()
        return sorted(each.getPath().toString().removeprefix(f"{self.path}/") for each in found)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; no effect if it doesn't exist."""
        self._files.delete(self._path_of(self.path_of(name)), True)

    def rename(self, name: str, to: str) -> None:
        """Rename, creating the folder of `to` if needed. Raises OSError, for example if `to` exists."""
        target = self._path_of(self.path_of(to))
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._path_of(self.path_of(name)), target):
            raise OSError(f"{self.path_of(name)} can't be renamed to {to}")

    def keep(self, frame: DataFrame, name: str) -> DataFrame:
        """Write the frame as a table and read it back, which cuts off its plan. Otherwise Spark would process that at
        each step.
        """
        frame.write.mode("overwrite").parquet(self.path_of(name))
        return self._spark.read.schema(frame.schema).parquet(self.path_of(name))

    def keep_grains(self, grains: Grains, name: str) -> Grains:
        """Keep the grains as tables in a folder of that name."""
        return Grains(*(self.keep(frame, f"{name}/{part}") for part, frame in grains._asdict().items()))

    def read(self, name: str) -> str | None:
        """Return a small text file; None if it doesn't exist."""
        file = self._path_of(self.path_of(name))
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a text file atomically: readers see all of the old text, or all of the new one."""
        if self.path.startswith("file:"):
            # Hadoop renames a file's checksum after the file: a kill between the two would make it unreadable.
            file = Path(self.path_of(name).removeprefix("file:"))
            file.parent.mkdir(parents=True, exist_ok=True)
            new_file = file.with_name(f"_new-{file.name}")
            new_file.write_text(text, encoding="utf-8")
            new_file.replace(file)
            return
        new = self._path_of(self.path_of(f"_new-{name}"))
        out = self._files.create(new, True)
        try:
            out.write(bytearray(text, "utf-8"))
        finally:
            out.close()
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(new.toUri(), self._hadoop)
        overwrite = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getClass(), 1)
        self._jvm.java.lang.reflect.Array.set(options, 0, overwrite)
        context.rename(new, self._path_of(self.path_of(name)), options)
