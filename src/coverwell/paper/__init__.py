"""The paper beside the code: its losses, its two ways to match, and Algorithm 1. Needs torch alone."""
