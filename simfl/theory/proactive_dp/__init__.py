"""Proactive DP: theorems, the calculator, the utility graph, and planning with them."""
