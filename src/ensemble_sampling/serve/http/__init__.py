"""The service over HTTP: who may call, what is sent and answered, and how much of it."""
