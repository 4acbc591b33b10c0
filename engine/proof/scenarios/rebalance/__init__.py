"""`rebalance`: what messages notice while partitions move."""
