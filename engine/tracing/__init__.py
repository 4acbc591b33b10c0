"""Traces: spans of OpenTelemetry for puts and attempts."""
