"""Reports on fitted models: one HTML file each, which needs no network and opens from disk."""

from coverwell.report.provenance import Source
from coverwell.report.rows_report import write_report
from coverwell.report.series_report import write_series_report

__all__ = ["Source", "write_report", "write_series_report"]
