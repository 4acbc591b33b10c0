"""Data source for `spark.read.format("evenlane")` and `readStream` (docs/reference/data-source.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.errors import ConfigError
from evenlane.spark import schemas
from evenlane.spark.source import archive
from evenlane.spark.source.filters import ReadFilter, narrow
from evenlane.spark.source.options import Options, parse
from evenlane.spark.source.plan import Task, file_tasks, tasks
from evenlane.spark.source.ranges import ranges
from evenlane.spark.source.reading import rows
from evenlane.spark.source.streaming import EvenlaneStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

SCHEMAS = {"meter": schemas.METER, "lanes": schemas.LANES, "dead": schemas.DEAD}


class EvenlaneSource(DataSource):
    """The data source; see docs/reference/data-source.md for its options and rows."""

    @classmethod
    def name(cls) -> str:
        return "evenlane"

    def schema(self) -> StructType:
        return SCHEMAS[parse(self.options).what]

    def reader(self, schema: StructType) -> EvenlaneReader:  # noqa: ARG002 - Spark passes it by name
        options = parse(self.options)
        return NarrowingReader(options) if options.pushdown else EvenlaneReader(options)

    def streamReader(self, schema: StructType) -> EvenlaneStreamReader:  # noqa: N802, ARG002
        options = parse(self.options)
        if options.archive is not None:
            raise ConfigError("option archive: a stream reads what comes to NATS; an archive is read by spark.read")
        return EvenlaneStreamReader(options)


class EvenlaneReader(DataSourceReader):
    """Reads a batch: what exists when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._narrow = ReadFilter(options.span)

    def partitions(self) -> Sequence[InputPartition]:
        return self.tasks()

    def tasks(self) -> list[Task]:
        """Return the tasks, at least one. Raises EvenlaneError."""
        options, narrow = self._options, self._narrow
        planned: list[Task] = []
        if options.archive is not None:
            files = archive.files(options.archive, narrow.span)
            planned += file_tasks(files, options.partitions)
            if options.live or options.settings.subscription is not None:
                archive.refuse_other(options.archive, options.settings.cluster)
            if options.live:
                narrow = archive.filter_after(files, narrow)
        if options.live:
            with StreamReader(options.settings) as server:
                planned += tasks(ranges(server, options, narrow), options.partitions)
        return planned or [Task()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return rows(self._options, partition)


class NarrowingReader(EvenlaneReader):
    """Reads only what a query's filters may keep, with the option `pushdown` (docs/adr/0021-push-down.md)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the read by the filters. All are returned, as Spark must still check each row."""
        self._narrow = narrow(filters, self._narrow)
        return filters
