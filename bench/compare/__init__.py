"""Parts of bench/compare.py: what is compared, the servers, the loads, the report."""
