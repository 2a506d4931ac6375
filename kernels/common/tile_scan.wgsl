// Sums up the counts of tiles: what each of them adds to begins where those before it end. A file that imports this
// binds `scanned`.
// @pz_import team

// Replaces each of the `tiles` counts from word `start` of `scanned` on by the sum of those before it, and returns the
// sum of all. A team does this.
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
