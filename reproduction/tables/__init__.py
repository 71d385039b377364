"""The paper's tables beside ours, as Markdown and CSV, from result lines alone."""
