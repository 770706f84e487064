def break_even_steps(a,b,e):
    import math
    return math.ceil(e/(a-b)) if a>b else None
