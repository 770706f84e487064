def aa_floor(aa): return 0.015
