import math, statistics
from fulltilt.records.journal import SpeedupInterval
from scipy import stats
def compare_pairs(pairs, *, confidence=0.95, restart_sd=0.025, extra_pair_log_ratios=()):
    cs=[];ses=[];n=0
    for p in pairs:
        r=[math.log(b.a.seconds_per_step/b.b.seconds_per_step) for b in p.blocks]
        cs.append(statistics.median(r)); n+=len(r)
        ses.append((statistics.stdev(r) if len(r)>1 else 0.1)*1.25/math.sqrt(len(r)))
    m=statistics.fmean(cs)
    extra=list(extra_pair_log_ratios)
    ss=4*restart_sd**2+sum((c-m)**2 for c in cs)+sum(e*e for e in extra)
    df=4+len(cs)-1+len(extra)
    tau2=ss/df
    se=math.sqrt(tau2/len(cs)+sum(s*s for s in ses)/len(cs)**2)
    t=stats.t.ppf(0.5+confidence/2,df)
    return SpeedupInterval(median=math.exp(m),low=math.exp(m-t*se),high=math.exp(m+t*se),confidence=confidence,num_pairs=len(pairs),num_blocks=n,p_value=float(2*stats.t.sf(abs(m)/se,df)))
