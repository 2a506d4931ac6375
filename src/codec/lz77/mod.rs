//! LZ77: candidates, parses, sequences and their coding.
