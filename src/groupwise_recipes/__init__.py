"""The systems Groupwise was built for, each a recipe on its public layers."""
