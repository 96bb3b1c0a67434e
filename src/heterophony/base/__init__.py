"""What every room may use: bytes without pickle, seeds, files on disk, TOML, wording of errors."""
