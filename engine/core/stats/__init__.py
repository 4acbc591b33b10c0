"""Figures: latencies, histograms, forecasts, tallies."""
