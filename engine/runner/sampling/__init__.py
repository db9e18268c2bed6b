"""Which token a row gets: greedy, drawn by a noise of its own, under rules and grammars; on a CPU and on a GPU."""
