"""The page in a real browser: see bench/page_check.py and bench/page_cost.py."""
