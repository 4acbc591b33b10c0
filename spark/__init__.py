"""Reports on what the engine meters: a PySpark data source, schema, jobs."""
