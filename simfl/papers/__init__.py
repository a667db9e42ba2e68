"""The papers: theory, calculators, algorithms, claims, study and figures of each."""
