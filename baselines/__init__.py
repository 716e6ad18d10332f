"""One page an algorithm. All share the loop of seedbench.train; what differs is what the page shows."""
