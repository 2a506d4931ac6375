// Turns the counts of tiles into the place where each tile's elements begin. A file that imports this binds `scanned`.
// @pz_import team

// Replaces each of the `tiles` counts from word `start` of `scanned` on by the sum of those before it, and returns the
// total. For one team.
fn scan_tiles(start: u32, tiles: u32) -> u32 {
    var before = 0u;
    var first = 0u;
    loop {
        if team_uniform(u32(first >= tiles)) != 0u {
            break;
        }
        let tile = first + lane;
        var count = 0u;
        if tile < tiles {
            count = scanned[start + tile];
        }
        let upto = team_scan(count);
        if tile < tiles {
            scanned[start + tile] = before + upto - count;
        }
        before += team_broadcast(upto, 31u);
        first += 32u;
    }
    return before;
}
