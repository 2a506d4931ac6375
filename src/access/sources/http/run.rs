//! Groups parts of a file into requests.

use std::io::{self, Read};

use crate::stream::Part;

/// Neighbouring parts that one request reads, and how far it has come.
#[derive(Debug)]
pub(super) struct RequestRun<'a> {
    /// In order of their offsets, without overlaps.
    parts: Vec<Part<'a>>,
    /// The part to fill next.
    next: usize,
    /// Offset of the next byte to arrive.
    position: u64,
    /// Offset of the byte after the last.
    end: u64,
}

/// The most bytes of a request for several parts. A failed request then costs little, and several can run at once.
const MAX_RUN: u64 = 8 << 20;
/// A gap of up to this many bytes never separates two parts, because the headers of another request would take as many.
const FREE_GAP: u64 = 512;
/// A longer gap joins two parts only if both have this many times its bytes. At most a sixteenth of the bytes are then
/// read in vain.
const WANTED_PER_GAP: u64 = 16;

impl<'a> RequestRun<'a> {
    fn new(part: Part<'a>) -> Self {
        Self { next: 0, position: part.offset, end: part.end(), parts: vec![part] }
    }

    /// Groups parts into runs. Parts that overlap go into different ones, since no byte of an answer goes to two
    /// places.
    pub(super) fn coalesce(mut parts: Vec<Part<'a>>) -> Vec<Self> {
        parts.retain(|part| !part.buffer.is_empty());
        parts.sort_by_key(|part| part.offset);
        let mut runs: Vec<Self> = Vec::new();
        for part in parts {
            match runs.last_mut() {
                Some(run) if run.takes(&part) => {
                    run.end = part.end();
                    run.parts.push(part);
                }
                _ => runs.push(Self::new(part)),
            }
        }
        runs
    }

    fn takes(&self, part: &Part<'_>) -> bool {
        let Some(gap) = part.offset.checked_sub(self.end) else { return false };
        let len = part.end() - self.position;
        // Each gap must be small against the two parts around it.
        let last = self.parts.last().map_or(0, |last| last.buffer.len());
        let wanted = last.min(part.buffer.len()) as u64;
        len <= MAX_RUN && (gap <= FREE_GAP || gap <= wanted / WANTED_PER_GAP)
    }

    /// The range that has not arrived yet.
    pub(super) fn missing(&self) -> std::ops::Range<u64> {
        self.position..self.end
    }

    /// Receives bytes from `body`, which continues where the last body ended, until all have arrived.
    ///
    /// # Errors
    /// The errors of reading, and [`io::ErrorKind::UnexpectedEof`] if the body is too short. Bytes that arrived before
    /// are kept.
    pub(super) fn receive(&mut self, body: &mut impl Read) -> io::Result<()> {
        let mut unwanted = [0; 4096];
        while let Some(part) = self.parts.get_mut(self.next) {
            let destination = match part.offset.checked_sub(self.position) {
                Some(gap) if gap > 0 => &mut unwanted[..gap.min(4096) as usize],
                _ => &mut part.buffer[(self.position - part.offset) as usize..],
            };
            match body.read(destination) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.position += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.position == part.end() {
                self.next += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs of parts given by offset and length.
    fn runs(places: &[(u64, usize)]) -> Vec<(u64, u64)> {
        let mut buffers: Vec<_> = places.iter().map(|&(_, len)| vec![0; len]).collect();
        let parts = places.iter().zip(&mut buffers);
        let parts = parts.map(|(&(offset, _), buffer)| Part { offset, buffer }).collect();
        RequestRun::coalesce(parts).iter().map(|run| (run.position, run.end)).collect()
    }

    #[test]
    fn neighbours_share_a_request() {
        for (places, expected) in [
            (&[][..], &[][..]),
            (&[(7, 0)], &[]),
            (&[(0, 10), (10, 10)], &[(0, 20)]),
            (&[(10, 10), (0, 10)], &[(0, 20)]),
            (&[(0, 10), (522, 10)], &[(0, 532)]),
            (&[(0, 10), (523, 10)], &[(0, 10), (523, 533)]),
            // A sixteenth of 100,000 is 6,250.
            (&[(0, 100_000), (106_250, 100_000)], &[(0, 206_250)]),
            (&[(0, 100_000), (106_251, 100_000)], &[(0, 100_000), (106_251, 206_251)]),
            (&[(0, 100_000), (106_250, 1000)], &[(0, 100_000), (106_250, 107_250)]),
            // Overlapping parts.
            (&[(0, 10), (5, 10)], &[(0, 10), (5, 15)]),
            (&[(0, 10), (0, 10)], &[(0, 10), (0, 10)]),
            (&[(0, 5 << 20), (5 << 20, 5 << 20)], &[(0, 5 << 20), (5 << 20, 10 << 20)]),
            (&[(3, 20 << 20)], &[(3, 3 + (20 << 20))]),
        ] {
            assert_eq!(runs(places), expected, "{places:?}");
        }
    }

    #[test]
    fn at_most_a_sixteenth_is_unwanted() {
        for len in [1000_usize, 20_000, 65_536, 300_000] {
            for gap in (0..30_000).step_by(97) {
                let stride = len as u64 + gap;
                let places: Vec<_> = (0..20).map(|i| (i * stride, len)).collect();
                let read: u64 = runs(&places).iter().map(|(from, to)| to - from).sum();
                let wanted = 20 * len as u64;
                let free = 19 * FREE_GAP;
                assert!(read <= wanted + wanted / 16 + free, "{len} and {gap}: {read}");
            }
        }
    }

    #[test]
    fn bytes_arrive_in_pieces() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let (mut first, mut second) = (vec![0; 9000], vec![0; 9000]);
        let parts = vec![
            Part { offset: 100, buffer: &mut first },
            Part { offset: 9600, buffer: &mut second },
        ];
        let [run] = &mut RequestRun::coalesce(parts)[..] else { panic!("one run") };
        // Each answer breaks off a little later.
        let mut answers = 0;
        while !run.missing().is_empty() {
            let from = run.missing().start as usize;
            let to = (from + 777).min(run.missing().end as usize);
            let outcome = run.receive(&mut &bytes[from..to]);
            assert_eq!(outcome.is_ok(), run.missing().is_empty());
            answers += 1;
        }
        assert_eq!(answers, 18500_usize.div_ceil(777));
        assert!(first == bytes[100..9100] && second == bytes[9600..18600]);
    }
}
