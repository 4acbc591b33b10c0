"""How nodes share one quota: division, loans and rounds."""
