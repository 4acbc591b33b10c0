"""Reports on what the engine meters: a PySpark data source, schema, jobs."""

if __name__ != "evenlane.spark":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.spark, not " + __name__)
