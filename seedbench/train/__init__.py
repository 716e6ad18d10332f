"""The on-policy loop that all trainers share. A page of baselines/ gives it an objective, and perhaps a context that
the actor sees or a hindsight that only the re-scoring teacher sees."""
