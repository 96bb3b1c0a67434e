"""What runs have to show: one page to look at, figures for papers, tables."""

from heterophony.report.page import lacking, write

__all__ = ["lacking", "write"]
