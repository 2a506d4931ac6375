// Turns the counts of tiles into the place where each tile's elements begin.
// @pz_import team

// Replaces each of the `tiles` counts by the sum of those before it, and returns the total. For one team.
inline uint scan_tiles(Team team, __global uint *counts, uint tiles) {
    uint before = 0;
    for (uint first = 0; first < tiles; first += 32) {
        uint tile = first + team.lane;
        uint count = tile < tiles ? counts[tile] : 0;
        uint upto = team_scan(team, count);
        if (tile < tiles) counts[tile] = before + upto - count;
        before += team_broadcast(team, upto, 31);
    }
    return before;
}
