"""The real ALFWorld engine (alfworld over TextWorld and Fast Downward), in processes of its own.

pool.py      in the caller's process: workers and the games on them; imports nothing of TextWorld
worker.py    in the worker's process: holds the engines, speaks JSON lines over a socket
turbo.py     caches for TextWorld's PDDL engine, applied in workers only; no output changes

Why never in the caller's process: the engine overwrites sys.argv and swaps sys.stdout, keeps memory for each game and
a library mapping for each environment, and is not thread-safe.
"""
