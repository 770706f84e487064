def holm(p,alpha=0.05):
    out={};m=len(p);ok=True
    for i,(k,v) in enumerate(sorted(p.items(),key=lambda kv:kv[1])):
        ok=ok and v<=alpha/(m-i); out[k]=ok
    return out
