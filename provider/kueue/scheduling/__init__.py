"""What Kueue's scheduler decides now: flavors, borrowed quota, preempted Workloads; and who waits behind whom."""
