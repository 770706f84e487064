"""From blocks of steps to statements: intervals, noise, warm-up, floors, corrections, break-even. Parent side."""
