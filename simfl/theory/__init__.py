"""The papers' theorems as calculators: what each paper claims, under the conditions that it states."""
