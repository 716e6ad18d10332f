"""`seedbench serve`: any TextEnv over HTTP. The API is described in docs/serving.md; its client is seedbench.remote."""
