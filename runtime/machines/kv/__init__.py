"""The key-value store: keys, waiting gets, lists and watches."""
