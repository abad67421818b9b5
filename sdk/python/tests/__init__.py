"""The client's tests."""
