from types import SimpleNamespace
def should_stop(blocks,*,floor,max_blocks,min_blocks=6):
    return SimpleNamespace(stop=len(blocks)>=min_blocks,reason="")
