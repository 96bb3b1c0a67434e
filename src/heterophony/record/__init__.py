"""What a run leaves behind: the evaluation table, the ledger, snapshots, the run folder."""
