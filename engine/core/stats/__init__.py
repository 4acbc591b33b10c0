"""Statistics: latencies, histograms, forecasts, tallies."""
