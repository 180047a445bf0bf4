"""`tokenspeed bench`: load for any server that speaks OpenAI's API, and what came of it."""
