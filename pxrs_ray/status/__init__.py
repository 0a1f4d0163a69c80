"""What people see of a topology, and what is wrong with it: plain data, and rules on it."""
