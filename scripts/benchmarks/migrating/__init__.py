"""What the benchmark `migrate` is made of: saves, contenders, measurements, tables."""
