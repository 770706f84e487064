"""Forward passes in bfloat16 or float16 by autocast, invisible to the script."""
