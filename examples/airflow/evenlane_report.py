"""A report every hour by Airflow: `apache-airflow-providers-apache-spark`, and a connection `spark_default`.

The workers' image has Evenlane installed with the extra `spark`; REPORTS and ARCHIVE are on storage that
the driver and all executors see.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

REPORTS = "/srv/evenlane/reports/{{ data_interval_end.strftime('%Y-%m-%dT%H') }}"
ARCHIVE = "/srv/evenlane/meter"
NATS = {"EVENLANE_NATS": "nats://nats.internal:4222", "EVENLANE_ENV": "online"}

# The folder spark/jobs of the installed package (examples/spark-operator/Dockerfile links it there).
JOBS = "/opt/evenlane-jobs"

with DAG(
    "evenlane_report",
    schedule="5 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow takes it as UTC
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=2)},
) as dag:
    # New meter records become Parquet. The job continues where the last run ended, so a retry writes nothing twice.
    archive = SparkSubmitOperator(
        task_id="archive",
        application=f"{JOBS}/archive.py",
        application_args=["--archive", ARCHIVE],
        env_vars=NATS,
    )
    # The report of the day so far. The previous one stays until it is complete.
    report = SparkSubmitOperator(
        task_id="report",
        application=f"{JOBS}/report.py",
        application_args=["--out", REPORTS, "--window", "1h", "--archive", ARCHIVE],
        env_vars=NATS,
    )
    archive >> report
