"""What is written down of a run, and figures computed from it: tables, the ledger, metrics, intervals."""
