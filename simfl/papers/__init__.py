"""One folder for each paper: theory, calculators, algorithms, claims, study and figures."""
