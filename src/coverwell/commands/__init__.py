"""The commands of `coverwell` for tables in files: one subject each."""
