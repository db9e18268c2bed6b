"""What HTTP costs: the same workload through the server and without it."""
