"""Parts of bench/compare.py and bench/client.py: the servers, the loads, the report, the plan."""
