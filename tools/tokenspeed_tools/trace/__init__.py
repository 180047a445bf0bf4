"""Looking into a running engine: record what it does, watch it live, tell a request's life, account for a step."""
