"""How workloads are made: lengths and times drawn from distributions, prompt files, and those that are shipped."""
