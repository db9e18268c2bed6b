"""What each technique buys: every one on its workload, beside the same run without it."""
