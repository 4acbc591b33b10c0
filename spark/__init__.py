"""Reports on metered usage: a PySpark data source, its schemas, and jobs."""

if __name__ != "evenlane.spark":  # found as a folder of the checkout: each module would be loaded twice
    raise ImportError("import evenlane.spark, not " + __name__)
