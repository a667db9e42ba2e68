"""What is special about single algorithms on their way from the schema to a run."""
