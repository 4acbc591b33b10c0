"""One lane: a stream under one epoch, what of it is settled, and what its settle log says."""
