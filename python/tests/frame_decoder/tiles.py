"""Section 5.3: the tiles of codes in buckets, which section 10 has too."""


def tile_size(bucket, coding):
    """T, the coordinates of a tile."""
    if bucket > 32768:
        return 32768
    goal = 4096 if coding == 0 else 32768
    return max(goal // bucket, 1) * bucket
