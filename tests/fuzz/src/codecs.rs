//! Codecs alone, without checksums that would reject most inputs.

use pz::internal::{
    BitReader, BitWriter, bwt, fse as fse_codec, huffman as huffman_codec, lz77 as lz77_codec,
};

/// The longest block, in bytes, that a target decodes.
const MAX_BLOCK: usize = 1 << 19;

/// Splits off the block's length, which takes three bytes.
fn block_and_payload(data: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let ([a, b, c], payload) = data.split_first_chunk()?;
    let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
    (1..=MAX_BLOCK).contains(&len).then(|| (vec![0xA5; len], payload))
}

/// Checks that the portable decoder and the fastest agree.
pub fn lz77(data: &[u8]) {
    let Some((mut block, payload)) = block_and_payload(data) else { return };
    let mut other = vec![0x5A; block.len()];
    let fastest = lz77_codec::Decoder::new().decode(payload, &mut block);
    let portable = lz77_codec::Decoder::portable().decode(payload, &mut other);
    assert_eq!(fastest.is_ok(), portable.is_ok(), "the decoders disagree");
    assert!(fastest.is_err() || block == other, "the decoders give different contents");
}

/// Checks that a decoder's earlier work does not change its verdict.
pub fn bwt(data: &[u8]) {
    let Some((mut block, payload)) = block_and_payload(data) else { return };
    let mut decoder = bwt::Decoder::new();
    let verdict = decoder.decode(payload, &mut block);
    let mut again = vec![0x5A; block.len()];
    assert_eq!(verdict, decoder.decode(payload, &mut again));
    assert!(verdict.is_err() || block == again, "the same payload gives different contents");
}

/// Input: the limit of code lengths, the size of the alphabet, a description. Checks that an accepted code is complete
/// and can be written again.
pub fn huffman(data: &[u8]) {
    let ([limit, symbols], description) = match data.split_first_chunk() {
        Some((&parameters, description)) => (parameters, description),
        None => return,
    };
    let max_len = limit % huffman_codec::MAX_LEN + 1;
    let mut lengths = vec![0; usize::from(symbols) + 1];
    let mut input = BitReader::new(description);
    if huffman_codec::read_lengths(&mut input, max_len, &mut [&mut lengths]).is_err() {
        return;
    }
    let mut table = vec![0; 1 << max_len];
    huffman_codec::build_table(&lengths, max_len, &mut table).expect("a complete code");
    let mut codes = vec![0; lengths.len()];
    huffman_codec::assign_codes(&lengths, &mut codes);
    let mut written = Vec::new();
    let mut out = BitWriter::new(&mut written);
    huffman_codec::write_lengths(&[&lengths], &mut out);
    out.finish();
    let mut again = vec![0; lengths.len()];
    let mut input = BitReader::new(&written);
    huffman_codec::read_lengths(&mut input, max_len, &mut [&mut again]).expect("what was written");
    assert_eq!(lengths, again);
}

/// The same for the normalised counts of FSE.
pub fn fse(data: &[u8]) {
    let ([log, symbols], description) = match data.split_first_chunk() {
        Some((&parameters, description)) => (parameters, description),
        None => return,
    };
    let logs = fse_codec::MAX_TABLE_LOG - fse_codec::MIN_TABLE_LOG + 1;
    let table_log = fse_codec::MIN_TABLE_LOG + log % logs;
    let mut norm = vec![0; usize::from(symbols) + 1];
    let mut input = BitReader::new(description);
    if fse_codec::read_norm(&mut input, table_log, &mut norm).is_err() {
        return;
    }
    let mut table = vec![0; 1 << table_log];
    fse_codec::build_decode_table(&norm, table_log, &mut table).expect("a complete table");
    fse_codec::EncodeTable::new().build(&norm, table_log);
    for state in &table {
        let (symbol, bits, base) = fse_codec::decode_entry(*state);
        assert!(norm[usize::from(symbol)] > 0 && u32::from(base) + (1 << bits) <= 1 << table_log);
    }
    let mut written = Vec::new();
    let mut out = BitWriter::new(&mut written);
    fse_codec::write_norm(&norm, table_log, &mut out);
    out.finish();
    let mut again = vec![0; norm.len()];
    let mut input = BitReader::new(&written);
    fse_codec::read_norm(&mut input, table_log, &mut again).expect("what was written");
    assert_eq!(norm, again);
}
