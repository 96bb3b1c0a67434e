"""Runs: from the first event to a folder that can be shown, exported and gone on with."""
