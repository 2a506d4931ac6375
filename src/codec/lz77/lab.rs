#![allow(missing_docs)]
use super::*;
use std::time::Instant;
pub fn run(name: &str, data: &[u8], block: usize, p: Params, reps: usize) {
    let mut e = Encoder::new(); let mut d = Decoder::new(); let mut dp = Decoder::portable();
    let (mut best, mut bestd, mut bestp) = (1e9f64, 1e9f64, 1e9f64); let mut size = 0;
    let mut payloads: Vec<Vec<u8>> = data.chunks(block).map(|b| Vec::with_capacity(b.len() + 1000)).collect();
    let mut o = vec![0u8; block];
    for _ in 0..reps {
        let t = Instant::now();
        for (b, p_) in data.chunks(block).zip(&mut payloads) { p_.clear(); e.encode(&p, b, p_); }
        best = best.min(t.elapsed().as_secs_f64());
        size = payloads.iter().map(|x| x.len()).sum();
        let mut td = 0.0;
        for (b, p_) in data.chunks(block).zip(&payloads) { o[..b.len()].fill(0xa5); let t = Instant::now(); d.decode(p_, &mut o[..b.len()]).unwrap(); td += t.elapsed().as_secs_f64(); assert!(o[..b.len()] == *b); }
        bestd = bestd.min(td);
    }
    { let t = Instant::now(); for (b, p_) in data.chunks(block).zip(&payloads) { dp.decode(p_, &mut o[..b.len()]).unwrap(); } bestp = bestp.min(t.elapsed().as_secs_f64()); }
    let mb = data.len() as f64 / 1e6;
    println!("{name}: {size} ({:.3}) enc {:.0} MB/s dec {:.0} MB/s (portable {:.0})", data.len() as f64 / size as f64, mb / best, mb / bestd, mb / bestp);
}
pub fn main(data: &[u8]) {
    let base = Params { chunk_log: 18, window_log: 18, group_log: 0, segment_log: 16, hash_log: 15, skip_log: 6, search: Search::Greedy, fse: false };
    run("greedy 256K", data, 1 << 20, base, 5);
    run("lazy 256K", data, 1 << 20, Params { search: Search::Lazy, hash_log: 16, ..base }, 3);
    run("lazy 4M", data, 1 << 22, Params { search: Search::Lazy, hash_log: 17, window_log: 22, ..base }, 3);
    run("lazy4 4M", data, 1 << 22, Params { search: Search::Lazy4, hash_log: 17, window_log: 22, ..base }, 3);
}
