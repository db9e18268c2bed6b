"""The Compare page: one workload raced through lanes, or swept over sizes."""
