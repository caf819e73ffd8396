"""The coordinator: membership, suspicion, commit and failure news."""
