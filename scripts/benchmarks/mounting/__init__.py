"""What the benchmark `mount` is made of: data, systems, work, measurements, tables."""
