"""The one error of this package."""


class DataError(ValueError):
    """Data that are missing, damaged or cannot be divided as asked; one line that says what to do."""
