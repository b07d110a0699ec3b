"""The five tasks as data: from public data sets to verl's rows, and the check of such rows."""
