"""What the scripts of bench/ share: server, loads, options, the page; the plan of compare.py."""
