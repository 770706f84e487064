def is_busy(a,b,n): return max((x.foreign_cpu_seconds or 0)/x.seconds for x in (a,b))>0.1
