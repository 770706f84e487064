def warmup_steps(s): return 2 if len(s)>4 else 0
def warmup_excess_seconds(s,n): return 0.0
